// What every part of the cache is built from; the caller's, except for
// counters.
#ifndef EVERWARM_CACHE_PARTS_H_
#define EVERWARM_CACHE_PARTS_H_

#include <cstdint>

#include "base/clock.h"
#include "base/log.h"
#include "cache/block_pool.h"
#include "cache/layer_group.h"
#include "cache/tier.h"

namespace everwarm::cache {

struct Parts {
  CacheLayout layout;
  BlockPool* pool = nullptr;
  Tier* tier = nullptr;
  const Clock* clock = nullptr;
  Logger logger;
  // Whether anything can become durable.
  bool tier_enabled = false;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_PARTS_H_
