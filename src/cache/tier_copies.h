// Which blocks are durable: the tree's side of what the tier has.
//
// Each node and group has one durable copy at most. When a longer one comes,
// the shorter is removed from the tier: after the longer is durable, never
// before.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_TIER_COPIES_H_
#define EVERWARM_CACHE_TIER_COPIES_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/parts.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class TierCopies {
 public:
  TierCopies(const Parts& parts, TokenTree& tree)
      : parts_(parts), tree_(tree) {}
  TierCopies(const TierCopies&) = delete;
  TierCopies& operator=(const TierCopies&) = delete;

  // The first `tokens` tokens of the residency's node are durable.
  void Add(Residency& residency, uint32_t tokens);

  // The tier no longer has it. Null when nobody here knew of it. The node may
  // be left with nothing: whoever is done with it prunes.
  Residency* Drop(const BlockKey& key);

  // Nobody needs it any more: the tier forgets it, too. Nothing where it is not
  // durable.
  void Remove(Residency& residency);

  // Null when not durable.
  Residency* Find(const BlockKey& key) const;

  // The greatest resume point of the first `length` tokens of a path when only
  // durable copies count. The path begins below its root.
  TokenPos DurablePrefix(absl::Span<Node* const> path, TokenPos length) const;

  size_t size() const { return copies_.size(); }
  // Of all nodes, those that at least one group has blocks of. Groups share a
  // node's tokens: they count once.
  uint64_t tokens() const { return tokens_; }

  // Changes whenever a copy comes or goes.
  uint64_t version() const { return version_; }

 private:
  // Sets the residency's count, and keeps tokens_ right.
  void SetTokens(Residency& residency, uint32_t tokens);

  const Parts& parts_;
  TokenTree& tree_;
  absl::flat_hash_map<BlockKey, Residency*> copies_;
  uint64_t version_ = 0;
  uint64_t tokens_ = 0;
};

// The greatest resume point over all paths when only durable copies count.
TokenPos LongestDurablePrefix(const TokenTree& tree, const CacheLayout& layout);

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_TIER_COPIES_H_
