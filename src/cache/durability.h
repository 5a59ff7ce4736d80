// How much of one conversation would be there after a power loss.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_DURABILITY_H_
#define EVERWARM_CACHE_DURABILITY_H_

#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cache/kv_cache.h"
#include "cache/layer_group.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

// Of the path of `tokens` under `root`, as far as the tree knows it. Copies of
// siblings do not count, so it may say a little too little, never too much.
PrefixDurability DurabilityOf(const TokenTree& tree, const CacheLayout& layout,
                              const NodeId& root,
                              absl::Span<const TokenId> tokens,
                              Clock::Monotonic now);

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_DURABILITY_H_
