#include "cache/latest_conversations.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace everwarm::cache {
namespace {

using ById = absl::flat_hash_map<NodeId, const TierEntry*>;

// Empty where a node between is missing.
std::vector<TokenId> TokensTo(const TierEntry& end, const ById& nodes) {
  std::vector<const TierEntry*> path = {&end};
  while (path.back()->identity.start > 0) {
    const auto parent = nodes.find(path.back()->identity.parent);
    if (parent == nodes.end() ||
        parent->second->identity.start >= path.back()->identity.start) {
      return {};
    }
    path.push_back(parent->second);
  }
  std::vector<TokenId> tokens;
  for (auto it = path.rbegin(); it != path.rend(); ++it) {
    const std::vector<TokenId>& more = (*it)->identity.tokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

using Spans = std::vector<const std::vector<TokenId>*>;

bool Before(const std::vector<TokenId>* a, const std::vector<TokenId>* b) {
  return *a < *b;
}

// Whether another of the siblings, which are sorted, begins with these tokens
// and has more: `tokens` are what is left of a tail that grew, or a state in
// the middle of a span.
bool IsBeginningOfAny(const std::vector<TokenId>& tokens,
                      const Spans& siblings) {
  const auto next =
      std::upper_bound(siblings.begin(), siblings.end(), &tokens, Before);
  return next != siblings.end() && (*next)->size() > tokens.size() &&
         std::equal(tokens.begin(), tokens.end(), (*next)->begin());
}

}  // namespace

std::vector<Conversation> LatestConversations(
    absl::Span<const TierEntry> entries, size_t max) {
  ById nodes;
  absl::flat_hash_map<NodeId, Spans> children;
  for (const TierEntry& entry : entries) {
    const TierEntry*& known = nodes[entry.identity.key.node];
    if (known == nullptr || known->last_used < entry.last_used) {
      known = &entry;
    }
    children[entry.identity.parent].push_back(&entry.identity.tokens);
  }
  for (auto& [parent, spans] : children) {
    std::sort(spans.begin(), spans.end(), Before);
  }
  std::vector<const TierEntry*> ends;
  for (const auto& [id, entry] : nodes) {
    if (!children.contains(id) &&
        !IsBeginningOfAny(entry->identity.tokens,
                          children.at(entry->identity.parent))) {
      ends.push_back(entry);
    }
  }
  std::sort(ends.begin(), ends.end(),
            [](const TierEntry* a, const TierEntry* b) {
              return a->last_used > b->last_used;
            });
  std::vector<Conversation> latest;
  for (const TierEntry* end : ends) {
    if (latest.size() >= max) {
      break;
    }
    std::vector<TokenId> tokens = TokensTo(*end, nodes);
    if (!tokens.empty()) {
      latest.push_back({end->identity.root, std::move(tokens)});
    }
  }
  std::reverse(latest.begin(), latest.end());
  return latest;
}

}  // namespace everwarm::cache
