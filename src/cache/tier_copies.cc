#include "cache/tier_copies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "cache/resume.h"

namespace everwarm::cache {
namespace {

uint32_t DurableTokens(const Node& node) {
  uint32_t most = 0;
  for (const Residency& residency : node.groups) {
    most = std::max(most, residency.tier_tokens);
  }
  return most;
}

// Goes on through the node's first `tokens` tokens, as far as they are durable.
void AddDurable(const TokenTree& tree, const Node& node, uint32_t tokens,
                SpanStates& states, ResumeScan& scan) {
  absl::InlinedVector<uint32_t, 4> covered(node.groups.size());
  for (const Residency& residency : node.groups) {
    covered[residency.group] = residency.tier_tokens;
  }
  states.Clear();
  const auto span = absl::MakeConstSpan(node.tokens).first(tokens);
  for (const Residency* state : tree.StatesAlong(node.parent, span)) {
    if (state->tier_tokens > 0) {
      states.Add(state->group, node.start + state->state_tokens);
    }
  }
  scan.Add(tokens, covered);
}

}  // namespace

void TierCopies::SetTokens(Residency& residency, uint32_t tokens) {
  const uint32_t before = DurableTokens(*residency.node);
  residency.tier_tokens = tokens;
  tokens_ += DurableTokens(*residency.node);
  tokens_ -= before;
}

void TierCopies::Add(Residency& residency, uint32_t tokens) {
  Node* const node = residency.node;
  const uint32_t before = residency.tier_tokens;
  if (tokens == before) {
    return;
  }
  const BlockKey key = tree_.Key(node, residency.group, tokens);
  if (tokens < before) {
    parts_.tier->Remove(key);
    return;
  }
  ++version_;
  copies_[key] = &residency;
  SetTokens(residency, tokens);
  if (before > 0) {
    const BlockKey shorter = tree_.Key(node, residency.group, before);
    copies_.erase(shorter);
    parts_.tier->Remove(shorter);
  }
}

Residency* TierCopies::Drop(const BlockKey& key) {
  const auto found = copies_.find(key);
  if (found == copies_.end()) {
    return nullptr;
  }
  ++version_;
  Residency* const residency = found->second;
  SetTokens(*residency, 0);
  copies_.erase(found);
  return residency;
}

void TierCopies::Remove(Residency& residency) {
  if (residency.tier_tokens == 0) {
    return;
  }
  const BlockKey key =
      tree_.Key(residency.node, residency.group, residency.tier_tokens);
  Drop(key);
  parts_.tier->Remove(key);
}

Residency* TierCopies::Find(const BlockKey& key) const {
  const auto found = copies_.find(key);
  return found == copies_.end() ? nullptr : found->second;
}

TokenPos TierCopies::DurablePrefix(absl::Span<Node* const> path,
                                   TokenPos length) const {
  SpanStates states;
  ResumeScan scan(parts_.layout, states);
  for (const Node* node : path) {
    const auto tokens = std::min<size_t>(
        node->tokens.size(), length - std::min(length, node->start));
    AddDurable(tree_, *node, static_cast<uint32_t>(tokens), states, scan);
  }
  return scan.resume_point();
}

TokenPos LongestDurablePrefix(const TokenTree& tree,
                              const CacheLayout& layout) {
  SpanStates states;
  TokenPos longest = 0;
  // Depth first, without recursion: conversations are thousands of nodes long.
  std::vector<std::pair<Node*, ResumeScan>> open;
  for (Node* root : tree.Roots()) {
    open.emplace_back(root, ResumeScan(layout, states));
  }
  while (!open.empty()) {
    const auto [node, before] = open.back();
    open.pop_back();
    for (Node* child : tree.Children(node)) {
      ResumeScan scan = before;
      AddDurable(tree, *child, static_cast<uint32_t>(child->tokens.size()),
                 states, scan);
      longest = std::max(longest, scan.resume_point());
      if (child->children > 0) {
        open.emplace_back(child, scan);
      }
    }
  }
  return longest;
}

}  // namespace everwarm::cache
