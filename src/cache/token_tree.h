// The tree of all tokens that the cache knows: what is where, and nothing of
// how it gets there.
//
// A node is a span of up to block_tokens tokens under its parent. Only full
// nodes have children; a shorter one is a tail and grows when something longer
// with the same beginning is published. So no node's tokens are the beginning
// of a sibling's, and each group's copies say how many of the tokens they hold.
//
// A state is of one exact position: behind the first so many tokens of a span.
// It hangs on one of the nodes that begin with these, and is found along each
// of them.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_TOKEN_TREE_H_
#define EVERWARM_CACHE_TOKEN_TREE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cache/block_pool.h"
#include "cache/tier.h"

namespace everwarm::cache {

struct Node;
struct Residency;
using ResidencyList = std::list<Residency*>;

// Where a write of a block stands; stores.h.
enum class StoreState : uint8_t {
  kNone,     // durable, or nothing is to be stored
  kQueued,   // to be handed to the tier
  kRunning,  // handed over
  kWaiting,  // failed; tried again later
};

// Where a node's block of one group is, or one of its states. A count of tokens
// of 0 means "not there"; otherwise the copy holds that many of the node's
// first tokens.
struct Residency {
  Node* node = nullptr;
  GroupIndex group = 0;
  StoreState store = StoreState::kNone;
  // 0: a block. Otherwise a state, and all other counts are this or 0.
  uint32_t state_tokens = 0;
  // Of a state: a later one takes its place in time (publication.h).
  bool passing = false;
  // Of a state: sequences that count on it and keep its place. Blocks are kept
  // by pins of their nodes.
  uint32_t plans = 0;

  BlockRef ram;
  uint32_t ram_tokens = 0;
  uint32_t tier_tokens = 0;
  // The running write.
  uint32_t storing_tokens = 0;
  // The longest running read, and how many there are.
  uint32_t loading_tokens = 0;
  uint32_t loads = 0;
  // Published, dropped from RAM before it was durable, and not made good since.
  uint32_t missing_tokens = 0;

  // Places in the lists of retention.h (while `ram`), of stores.h (while
  // `store` is not kNone) and of flush_tracker.h (while `missing_tokens`).
  ResidencyList::iterator ram_place;
  ResidencyList::iterator store_place;
  ResidencyList::iterator missing_place;
  Clock::Monotonic retry_at{};
  // Of the RAM copy.
  Clock::Monotonic used_at{};

  bool is_state() const { return state_tokens > 0; }
  bool durable() const { return tier_tokens > 0 && tier_tokens >= ram_tokens; }
  bool empty() const {
    return !ram && tier_tokens == 0 && store == StoreState::kNone &&
           loads == 0 && missing_tokens == 0 && plans == 0;
  }
};

struct Node {
  Node* parent = nullptr;  // Null for a root.
  Node* root = nullptr;
  TokenPos start = 0;
  uint32_t children = 0;
  // Reasons to keep the node although nothing is resident.
  uint32_t pins = 0;
  // States of sessions at its end or further down; sessions.h.
  uint32_t sessions = 0;
  std::vector<TokenId> tokens;
  // Blocks; of kRecurrent groups none is ever there.
  std::vector<Residency> groups;
  std::list<Residency> states;
  // Of all tokens; computed when somebody needs it, always there for a root.
  std::optional<NodeId> id;
};

class TokenTree {
 public:
  TokenTree(uint32_t block_tokens, size_t num_groups)
      : block_tokens_(block_tokens), num_groups_(num_groups) {}
  TokenTree(const TokenTree&) = delete;
  TokenTree& operator=(const TokenTree&) = delete;

  // Null when nothing is known under that root.
  Node* FindRoot(const NodeId& id) const;
  Node* FindOrAddRoot(const NodeId& id);

  // The child with exactly these tokens, found by their hash; null if none.
  Node* Find(const Node* parent, absl::Span<const TokenId> span) const;

  struct Neighbour {
    Node* node = nullptr;
    // How many tokens it shares with the span from its start; at least one.
    uint32_t common = 0;
  };
  // Children that share their first tokens with the span: those that share the
  // most, and some of the others when there are many.
  // Requires: span.size() <= block_tokens.
  std::vector<Neighbour> Neighbours(const Node* parent,
                                    absl::Span<const TokenId> span) const;

  // The child whose tokens begin with the span: an existing one, an existing
  // shorter one that grows to the span, or a new one.
  // Requires: 0 < span.size() <= block_tokens; parent is a root or full.
  Node* FindOrAdd(Node* parent, absl::Span<const TokenId> span);

  // The state of exactly the position behind `span`; null if none.
  Residency* FindState(const Node* parent, absl::Span<const TokenId> span,
                       GroupIndex group) const;
  // The states of all groups behind each beginning of `span`.
  std::vector<Residency*> StatesAlong(const Node* parent,
                                      absl::Span<const TokenId> span) const;
  // Requires: 0 < tokens <= node->tokens.size().
  Residency& FindOrAddState(Node* node, GroupIndex group, uint32_t tokens);

  // Removes the node's states that are nowhere, and the node itself if nothing
  // keeps it, then its parent's, and so on.
  void Prune(Node* node);
  void Pin(Node* node) { ++node->pins; }
  void Unpin(Node* node);

  // Of the node's first `tokens` tokens.
  BlockKey Key(Node* node, GroupIndex group, uint32_t tokens) const;
  BlockIdentity Identity(Node* node, GroupIndex group, uint32_t tokens) const;

  std::vector<Node*> Children(const Node* parent) const;
  std::vector<Node*> Roots() const;

  bool full(const Node& node) const {
    return node.tokens.size() == block_tokens_;
  }
  uint32_t block_tokens() const { return block_tokens_; }
  // Without roots.
  size_t num_nodes() const { return spans_.size(); }

 private:
  struct SpanKey {
    const Node* parent;
    absl::Span<const TokenId> tokens;
  };
  static SpanKey KeyOf(const SpanKey& key) { return key; }
  static SpanKey KeyOf(const Node* node) {
    return {node->parent, node->tokens};
  }
  static SpanKey KeyOf(const std::unique_ptr<Node>& node) {
    return KeyOf(node.get());
  }
  struct SpanHash {
    using is_transparent = void;
    template <typename T>
    size_t operator()(const T& value) const {
      return Hash(KeyOf(value));
    }
  };
  struct SpanEqual {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const SpanKey left = KeyOf(a);
      const SpanKey right = KeyOf(b);
      return left.parent == right.parent && left.tokens == right.tokens;
    }
  };
  // Siblings side by side, by their tokens.
  struct SpanLess {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Less(KeyOf(a), KeyOf(b));
    }
  };
  // A state's place; by its tokens, then by its group.
  struct StateKey {
    SpanKey span;
    GroupIndex group = 0;
  };
  static StateKey StateKeyOf(const StateKey& key) { return key; }
  static StateKey StateKeyOf(const Residency* state) {
    return {{state->node->parent, TokensOf(*state)}, state->group};
  }
  struct StateLess {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const StateKey left = StateKeyOf(a);
      const StateKey right = StateKeyOf(b);
      if (Less(left.span, right.span)) {
        return true;
      }
      return !Less(right.span, left.span) && left.group < right.group;
    }
  };
  static size_t Hash(const SpanKey& key);
  static bool Less(const SpanKey& left, const SpanKey& right);
  static absl::Span<const TokenId> TokensOf(const Residency& state) {
    return absl::MakeConstSpan(state.node->tokens).first(state.state_tokens);
  }

  const NodeId& Id(Node* node) const;
  void Grow(Node* node, absl::Span<const TokenId> span);
  void DropEmptyStates(Node* node);

  const uint32_t block_tokens_;
  const size_t num_groups_;
  absl::flat_hash_map<NodeId, std::unique_ptr<Node>> roots_;
  absl::flat_hash_set<std::unique_ptr<Node>, SpanHash, SpanEqual> spans_;
  absl::btree_set<Node*, SpanLess> ordered_;
  absl::btree_set<Residency*, StateLess> states_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_TOKEN_TREE_H_
