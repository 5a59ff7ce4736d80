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

// Whether another node begins with its tokens and more: what is left of a tail
// that grew, or a state in the middle of a span.
bool IsBeginningOf(const BlockIdentity& end,
                   absl::Span<const TierEntry* const> siblings) {
  return std::any_of(
      siblings.begin(), siblings.end(), [&](const TierEntry* sibling) {
        const std::vector<TokenId>& tokens = sibling->identity.tokens;
        return tokens.size() > end.tokens.size() &&
               std::equal(end.tokens.begin(), end.tokens.end(), tokens.begin());
      });
}

}  // namespace

std::vector<Conversation> LatestConversations(
    absl::Span<const TierEntry> entries, size_t max) {
  ById nodes;
  absl::flat_hash_map<NodeId, std::vector<const TierEntry*>> children;
  for (const TierEntry& entry : entries) {
    const TierEntry*& known = nodes[entry.identity.key.node];
    if (known == nullptr || known->last_used < entry.last_used) {
      known = &entry;
    }
    children[entry.identity.parent].push_back(&entry);
  }
  std::vector<const TierEntry*> ends;
  for (const auto& [id, entry] : nodes) {
    if (!children.contains(id) &&
        !IsBeginningOf(entry->identity, children.at(entry->identity.parent))) {
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
