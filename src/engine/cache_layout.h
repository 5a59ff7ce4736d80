// How a model's layer groups look to the cache.
//
// Pure.
#ifndef EVERWARM_ENGINE_CACHE_LAYOUT_H_
#define EVERWARM_ENGINE_CACHE_LAYOUT_H_

#include "cache/layer_group.h"
#include "models/model.h"

namespace everwarm::engine {

cache::CacheLayout CacheLayoutOf(const models::Model& model);

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_CACHE_LAYOUT_H_
