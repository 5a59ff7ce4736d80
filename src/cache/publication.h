// Making what a sequence has findable by others.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_PUBLICATION_H_
#define EVERWARM_CACHE_PUBLICATION_H_

#include <cstdint>

#include "cache/retention.h"
#include "cache/sequence_state.h"
#include "cache/sessions.h"
#include "cache/stores.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

// Shares the sequence's blocks with the tree, span by span, and marks what is
// not durable to be stored, parents first. Where the tree has the same full
// block already, the sequence goes on with that one. Its session has come that
// far.
void PublishSequence(SequenceState& sequence, TokenTree& tree,
                     Retention& retention, Stores& stores, Sessions& sessions);

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_PUBLICATION_H_
