// Making what a sequence has findable by others.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_PUBLICATION_H_
#define EVERWARM_CACHE_PUBLICATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/retention.h"
#include "cache/sequence_state.h"
#include "cache/sessions.h"
#include "cache/stores.h"
#include "cache/tier_copies.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Publication {
 public:
  struct Counters {
    uint64_t publications = 0;
    // States that were not there before.
    uint64_t states = 0;
    // Passing states that later ones stand for.
    uint64_t thinned_states = 0;
  };
  Publication(TokenTree& tree, TierCopies& copies, Retention& retention,
              Stores& stores, Sessions& sessions)
      : tree_(tree),
        copies_(copies),
        retention_(retention),
        stores_(stores),
        sessions_(sessions) {}
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  // Shares the sequence's blocks with the tree, span by span, and its states at
  // its length, and marks what is not durable to be stored, parents first.
  // Where the tree has the same full block already, the sequence goes on with
  // that one. A state that is shared is not the sequence's own any more: it is
  // copied when the sequence goes on. Its session has come that far.
  void Publish(SequenceState& sequence, StateUse states);

  // Something has become durable, or a read or a write has ended.
  void NoteChange() { to_look_at_ = unfinished_.size(); }
  // Of passed states that had to stay when they were passed, lets those of one
  // path go if they may by now. Cheap; for every turn.
  void ThinOneMore();

  const Counters& counters() const { return counters_; }

 private:
  // A path on which a passed state had to stay.
  struct Unfinished {
    // Pinned.
    Node* end = nullptr;
    TokenPos newest = 0;
  };
  // Of the node that the sequence ends in.
  std::vector<Residency*> ShareStates(SequenceState& sequence, Node* end,
                                      StateUse use);
  // Passing states stay at a few places for each power of two of the distance
  // to the newest: what is behind a multiple of 2^k tokens goes when the newest
  // is more than 4 * 2^k tokens further. A durable one stays until the path can
  // go on from a later place after a power loss: somebody may have been told
  // that it is durable so far. False: some of what is to go has to stay for
  // now.
  bool Thin(const std::vector<Node*>& path, TokenPos newest);
  // The same; what has to stay for now goes later (ThinOneMore()).
  void ThinOrWait(const std::vector<Node*>& path, TokenPos newest);

  TokenTree& tree_;
  TierCopies& copies_;
  Retention& retention_;
  Stores& stores_;
  Sessions& sessions_;
  std::deque<Unfinished> unfinished_;
  // Of these, from the first on, since the last change.
  size_t to_look_at_ = 0;
  Counters counters_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_PUBLICATION_H_
