#include "engine/token_history.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "engine/text_stream.h"

namespace everwarm::engine {
namespace {

// Ends inside a character.
bool IsCut(std::string_view text) {
  size_t incomplete = 0;
  // Only its last bytes can be the beginning of a character.
  ValidUtf8(text.substr(text.size() - std::min<size_t>(text.size(), 8)),
            &incomplete);
  return incomplete > 0;
}

}  // namespace

void TokenHistory::Remember(std::string_view name_space,
                            std::vector<TokenId> tokens) {
  Remember(RootId(fingerprint_, name_space), std::move(tokens));
}

void TokenHistory::Remember(const NodeId& root, std::vector<TokenId> tokens) {
  std::list<Entry> one;
  one.push_back({root, std::move(tokens), ""});
  MutexLock lock(new_mutex_);
  new_.splice(new_.end(), one);
  // Nobody has asked for a while.
  if (new_.size() > limits_.max_entries) {
    new_.pop_front();
  }
}

std::string TokenHistory::TextOf(absl::Span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens) {
    text += piece_of_(token);
  }
  return text;
}

std::optional<TokenHistory::Known> TokenHistory::Find(
    std::string_view name_space, std::string_view text,
    absl::Span<const TokenId> unwritten) {
  const NodeId root = RootId(fingerprint_, name_space);
  const size_t hidden = TextOf(unwritten).size();
  MutexLock lock(mutex_);
  TakeNew();
  auto best = entries_.end();
  size_t best_tokens = 0;
  size_t best_bytes = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->root != root || it->tokens.size() <= unwritten.size() ||
        !std::equal(unwritten.begin(), unwritten.end(), it->tokens.begin())) {
      continue;
    }
    const size_t tokens = Matching(*it, text, hidden);
    const size_t bytes = std::min(it->text.size() - hidden, text.size());
    if (tokens > unwritten.size() && bytes > best_bytes) {
      best = it;
      best_tokens = tokens;
      best_bytes = bytes;
    }
  }
  if (best == entries_.end()) {
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, best);
  return Known{
      {best->tokens.begin(),
       best->tokens.begin() + static_cast<std::ptrdiff_t>(best_tokens)},
      best_bytes};
}

size_t TokenHistory::Matching(const Entry& entry, std::string_view text,
                              size_t hidden) const {
  const std::string_view known = std::string_view(entry.text).substr(hidden);
  if (text.starts_with(known)) {
    return entry.tokens.size();
  }
  if (!known.starts_with(text)) {
    return 0;
  }
  // The text must end between two tokens.
  size_t bytes = entry.text.size();
  size_t tokens = entry.tokens.size();
  while (tokens > 0 && bytes > hidden + text.size()) {
    bytes -= piece_of_(entry.tokens[--tokens]).size();
  }
  return bytes == hidden + text.size() ? tokens : 0;
}

void TokenHistory::TakeNew() {
  std::list<Entry> taken;
  {
    MutexLock lock(new_mutex_);
    taken.swap(new_);
  }
  for (Entry& entry : taken) {
    const auto same =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& known) {
          return known.root == entry.root && known.tokens == entry.tokens;
        });
    if (same != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, same);
      continue;
    }
    entry.text = TextOf(entry.tokens);
    // Of a character that is not whole yet nobody sends half back.
    while (!entry.tokens.empty() && IsCut(entry.text)) {
      entry.text.resize(entry.text.size() -
                        piece_of_(entry.tokens.back()).size());
      entry.tokens.pop_back();
    }
    if (!entry.tokens.empty()) {
      Add(std::move(entry));
    }
  }
}

void TokenHistory::Add(Entry entry) {
  // Other tokens with the same text: the newer ones are what the cache has.
  const auto same =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& known) {
        return known.root == entry.root && known.text == entry.text;
      });
  if (same != entries_.end()) {
    text_bytes_ -= same->text.size();
    entries_.erase(same);
  }
  text_bytes_ += entry.text.size();
  entries_.push_front(std::move(entry));
  while (entries_.size() > limits_.max_entries ||
         text_bytes_ > limits_.max_text_bytes) {
    text_bytes_ -= entries_.back().text.size();
    entries_.pop_back();
  }
}

}  // namespace everwarm::engine
