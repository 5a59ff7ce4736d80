#include "cache/preload.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"

namespace everwarm::cache {
namespace {

// Tokens of a piece are whole blocks of every size.
constexpr size_t kPieceTokens = 256;

}  // namespace

Preload::Preload(KvCache* cache, std::vector<Conversation> latest,
                 Options options)
    : cache_(cache),
      latest_(std::move(latest)),
      options_(options),
      next_(latest_.size()) {}

bool Preload::Advance() {
  while (sequence_ == nullptr || sequence_->ready()) {
    if (sequence_ != nullptr && length_ == latest_[next_ - 1].tokens.size()) {
      --next_;
      length_ = 0;
    }
    sequence_.reset();
    if (next_ == 0 || !Begin()) {
      TouchFinished();
      return false;
    }
  }
  return true;
}

bool Preload::Begin() {
  const Conversation& conversation = latest_[next_ - 1];
  const uint64_t before =
      cache_->SequenceBytes(static_cast<TokenPos>(length_), 0);
  size_t length = length_;
  uint64_t more = 0;
  do {
    length = std::min(length + kPieceTokens, conversation.tokens.size());
    more = cache_->SequenceBytes(static_cast<TokenPos>(length), 0) - before;
  } while (length < conversation.tokens.size() && more < options_.piece_bytes);
  if (cache_->stats().ram_used_bytes + more > options_.most_bytes) {
    return false;
  }
  length_ = length;
  sequence_ =
      cache_->Preload(conversation.root,
                      absl::MakeConstSpan(conversation.tokens).first(length));
  return true;
}

void Preload::TouchFinished() {
  for (size_t i = next_; i < latest_.size(); ++i) {
    cache_->Preload(latest_[i].root, latest_[i].tokens);
  }
}

}  // namespace everwarm::cache
