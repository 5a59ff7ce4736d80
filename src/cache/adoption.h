// Building the tree from what a start-up scan of the tier found.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_ADOPTION_H_
#define EVERWARM_CACHE_ADOPTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "cache/parts.h"
#include "cache/tier_copies.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Adoption {
 public:
  Adoption(const Parts& parts, TokenTree& tree, TierCopies& copies)
      : parts_(parts), tree_(tree), copies_(copies) {}
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  // Entries that contradict themselves or the layout are ignored; those whose
  // parent is not known wait for it, up to a bound.
  void Adopt(std::vector<TierEntry> entries);
  // A block of this node has become durable: its children may be waiting.
  void OnDurable(const BlockKey& key);
  // Whether this very block waits: it is durable already, and becomes known.
  bool Claim(const BlockIdentity& identity, Residency& residency);
  // The tier no longer has it.
  void Forget(const BlockKey& key);

  size_t waiting() const { return parents_.size(); }

 private:
  bool MakesSense(const BlockIdentity& identity) const;
  Node* FindParent(const BlockIdentity& identity) const;
  // Attaches the entry and all that waited for it.
  void Attach(const BlockIdentity& identity, Node* parent);
  void Wait(BlockIdentity identity);

  const Parts& parts_;
  TokenTree& tree_;
  TierCopies& copies_;
  // By the parent's id.
  absl::flat_hash_map<NodeId, std::vector<BlockIdentity>> waiting_;
  // Of all that wait.
  absl::flat_hash_map<BlockKey, NodeId> parents_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_ADOPTION_H_
