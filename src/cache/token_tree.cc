#include "cache/token_tree.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/hash/hash.h"

namespace everwarm::cache {
namespace {

// Siblings that share tokens with a span are compared for what they hold, but
// only this many to each side.
constexpr size_t kMaxNeighboursPerSide = 8;

uint32_t CommonPrefix(absl::Span<const TokenId> a,
                      absl::Span<const TokenId> b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
}

bool IsPrefix(absl::Span<const TokenId> prefix, absl::Span<const TokenId> of) {
  return prefix.size() <= of.size() &&
         CommonPrefix(prefix, of) == prefix.size();
}

}  // namespace

size_t TokenTree::Hash(const SpanKey& key) {
  return absl::HashOf(key.parent, key.tokens);
}

bool TokenTree::Less(const SpanKey& left, const SpanKey& right) {
  if (left.parent != right.parent) {
    return std::less<const Node*>()(left.parent, right.parent);
  }
  return std::lexicographical_compare(left.tokens.begin(), left.tokens.end(),
                                      right.tokens.begin(), right.tokens.end());
}

Node* TokenTree::FindRoot(const NodeId& id) const {
  const auto found = roots_.find(id);
  return found == roots_.end() ? nullptr : found->second.get();
}

Node* TokenTree::FindOrAddRoot(const NodeId& id) {
  std::unique_ptr<Node>& root = roots_[id];
  if (root == nullptr) {
    root = std::make_unique<Node>();
    root->root = root.get();
    root->id = id;
  }
  return root.get();
}

Node* TokenTree::Find(const Node* parent,
                      absl::Span<const TokenId> span) const {
  const auto found = spans_.find(SpanKey{parent, span});
  return found == spans_.end() ? nullptr : found->get();
}

std::vector<TokenTree::Neighbour> TokenTree::Neighbours(
    const Node* parent, absl::Span<const TokenId> span) const {
  // In sorted order, the nearer to the span's own place on either side, the
  // more of its tokens a child shares.
  std::vector<Neighbour> neighbours;
  const auto add = [&](Node* node) {
    const uint32_t common =
        node->parent == parent ? CommonPrefix(node->tokens, span) : 0;
    if (common > 0) {
      neighbours.push_back({node, common});
    }
    return common > 0;
  };
  const auto place = ordered_.lower_bound(SpanKey{parent, span});
  auto it = place;
  for (size_t i = 0; i < kMaxNeighboursPerSide && it != ordered_.end(); ++i) {
    if (!add(*it++)) {
      break;
    }
  }
  it = place;
  for (size_t i = 0; i < kMaxNeighboursPerSide && it != ordered_.begin(); ++i) {
    if (!add(*--it)) {
      break;
    }
  }
  return neighbours;
}

Node* TokenTree::FindOrAdd(Node* parent, absl::Span<const TokenId> span) {
  if (Node* const exact = Find(parent, span); exact != nullptr) {
    return exact;
  }
  const auto place = ordered_.lower_bound(SpanKey{parent, span});
  if (place != ordered_.end() && (*place)->parent == parent &&
      IsPrefix(span, (*place)->tokens)) {
    return *place;
  }
  if (place != ordered_.begin()) {
    // Whatever lies between a beginning and the span begins with it too, so
    // only the direct neighbour can be one.
    Node* const before = *std::prev(place);
    if (before->parent == parent && IsPrefix(before->tokens, span)) {
      Grow(before, span);
      return before;
    }
  }
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->root = parent->root;
  node->start = parent->start + static_cast<TokenPos>(parent->tokens.size());
  node->tokens.assign(span.begin(), span.end());
  node->groups.resize(num_groups_);
  for (size_t g = 0; g < num_groups_; ++g) {
    node->groups[g].node = node.get();
    node->groups[g].group = static_cast<GroupIndex>(g);
  }
  ++parent->children;
  Node* const added = node.get();
  ordered_.insert(added);
  spans_.insert(std::move(node));
  return added;
}

void TokenTree::Grow(Node* node, absl::Span<const TokenId> span) {
  ordered_.erase(node);
  auto handle = spans_.extract(spans_.find(KeyOf(node)));
  node->tokens.assign(span.begin(), span.end());
  node->id.reset();
  spans_.insert(std::move(handle));
  ordered_.insert(node);
}

void TokenTree::Unpin(Node* node) {
  --node->pins;
  Prune(node);
}

Residency* TokenTree::FindState(const Node* parent,
                                absl::Span<const TokenId> span,
                                GroupIndex group) const {
  const auto found = states_.find(StateKey{{parent, span}, group});
  return found == states_.end() ? nullptr : *found;
}

std::vector<Residency*> TokenTree::StatesAlong(
    const Node* parent, absl::Span<const TokenId> span) const {
  // Backwards from where the whole span would be. What is met either is a
  // beginning of the span, or says by how much less of it all others before it
  // can begin.
  constexpr GroupIndex kLastGroup = std::numeric_limits<GroupIndex>::max();
  std::vector<Residency*> found;
  auto it = states_.upper_bound(StateKey{{parent, span}, kLastGroup});
  while (it != states_.begin()) {
    Residency* const state = *--it;
    if (state->node->parent != parent) {
      break;
    }
    const uint32_t common = CommonPrefix(TokensOf(*state), span);
    if (common == state->state_tokens) {
      found.push_back(state);
    } else if (common == 0) {
      break;
    } else {
      it = states_.upper_bound(
          StateKey{{parent, span.first(common)}, kLastGroup});
    }
  }
  return found;
}

Residency& TokenTree::FindOrAddState(Node* node, GroupIndex group,
                                     uint32_t tokens) {
  if (Residency* const known = FindState(
          node->parent, absl::MakeConstSpan(node->tokens).first(tokens), group);
      known != nullptr) {
    return *known;
  }
  Residency& state = node->states.emplace_back();
  state.node = node;
  state.group = group;
  state.state_tokens = tokens;
  states_.insert(&state);
  return state;
}

void TokenTree::DropEmptyStates(Node* node) {
  for (auto it = node->states.begin(); it != node->states.end();) {
    if (it->empty()) {
      states_.erase(&*it);
      it = node->states.erase(it);
    } else {
      ++it;
    }
  }
}

void TokenTree::Prune(Node* node) {
  while (node != nullptr) {
    DropEmptyStates(node);
    if (node->children > 0 || node->pins > 0 || !node->states.empty() ||
        !std::all_of(node->groups.begin(), node->groups.end(),
                     [](const Residency& r) { return r.empty(); })) {
      return;
    }
    Node* const parent = node->parent;
    if (parent == nullptr) {
      const NodeId id = *node->id;
      roots_.erase(id);
      return;
    }
    --parent->children;
    ordered_.erase(node);
    spans_.erase(spans_.find(KeyOf(node)));
    node = parent;
  }
}

const NodeId& TokenTree::Id(Node* node) const {
  // Without recursion: a conversation may be many thousand nodes long.
  std::vector<Node*> unknown;
  for (Node* at = node; !at->id.has_value(); at = at->parent) {
    unknown.push_back(at);
  }
  for (auto it = unknown.rbegin(); it != unknown.rend(); ++it) {
    (*it)->id = ChildId(*(*it)->parent->id, (*it)->tokens);
  }
  return *node->id;
}

BlockKey TokenTree::Key(Node* node, GroupIndex group, uint32_t tokens) const {
  if (tokens == node->tokens.size()) {
    return {Id(node), group};
  }
  return {ChildId(Id(node->parent),
                  absl::MakeConstSpan(node->tokens).first(tokens)),
          group};
}

BlockIdentity TokenTree::Identity(Node* node, GroupIndex group,
                                  uint32_t tokens) const {
  BlockIdentity identity;
  identity.key = Key(node, group, tokens);
  identity.parent = Id(node->parent);
  identity.root = *node->root->id;
  identity.start = node->start;
  identity.tokens.assign(node->tokens.begin(), node->tokens.begin() + tokens);
  return identity;
}

std::vector<Node*> TokenTree::Children(const Node* parent) const {
  std::vector<Node*> children;
  for (auto it = ordered_.lower_bound(SpanKey{parent, {}});
       it != ordered_.end() && (*it)->parent == parent; ++it) {
    children.push_back(*it);
  }
  return children;
}

std::vector<Node*> TokenTree::Roots() const {
  std::vector<Node*> roots;
  for (const auto& [id, root] : roots_) {
    roots.push_back(root.get());
  }
  return roots;
}

}  // namespace everwarm::cache
