#include "cache/durability.h"

#include <algorithm>
#include <vector>

#include "cache/resume.h"

namespace everwarm::cache {
namespace {

// The child that begins with the whole span; null if none.
Node* FindBeginning(const TokenTree& tree, const Node* parent,
                    absl::Span<const TokenId> span) {
  if (Node* const exact = tree.Find(parent, span); exact != nullptr) {
    return exact;
  }
  for (const TokenTree::Neighbour& neighbour : tree.Neighbours(parent, span)) {
    if (neighbour.common == span.size()) {
      return neighbour.node;
    }
  }
  return nullptr;
}

// Whether a write of it is on its way, or about to be.
bool Pending(const Residency& residency, Clock::Monotonic now) {
  switch (residency.store) {
    case StoreState::kQueued:
    case StoreState::kRunning:
      return true;
    case StoreState::kWaiting:
      return residency.retry_at <= now;
    case StoreState::kNone:
      break;
  }
  return false;
}

}  // namespace

PrefixDurability DurabilityOf(const TokenTree& tree, const CacheLayout& layout,
                              const NodeId& root,
                              absl::Span<const TokenId> tokens,
                              Clock::Monotonic now) {
  PrefixDurability result;
  SpanStates states;
  ResumeScan scan(layout, states);
  const Node* node = tree.FindRoot(root);
  std::vector<uint32_t> covered(layout.groups.size());
  while (node != nullptr && !tokens.empty()) {
    const absl::Span<const TokenId> span =
        tokens.first(std::min<size_t>(tokens.size(), tree.block_tokens()));
    states.Clear();
    for (const Residency* state : tree.StatesAlong(node, span)) {
      if (state->tier_tokens > 0) {
        states.Add(state->group, state->node->start + state->state_tokens);
      }
      result.pending = result.pending || Pending(*state, now);
    }
    node = FindBeginning(tree, node, span);
    if (node == nullptr) {
      break;
    }
    for (const Residency& residency : node->groups) {
      covered[residency.group] = residency.tier_tokens;
      result.pending = result.pending || Pending(residency, now);
    }
    scan.Add(static_cast<uint32_t>(span.size()), covered);
    tokens.remove_prefix(span.size());
  }
  result.tokens = scan.resume_point();
  return result;
}

}  // namespace everwarm::cache
