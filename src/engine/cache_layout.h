// How a model's layer groups look to the cache.
//
// Pure.
// Errors: kUnimplemented, with the model's file: none of its layers has keys
// and values, by whose blocks the cache finds a conversation.
#ifndef EVERWARM_ENGINE_CACHE_LAYOUT_H_
#define EVERWARM_ENGINE_CACHE_LAYOUT_H_

#include "absl/status/statusor.h"
#include "cache/layer_group.h"
#include "models/model.h"

namespace everwarm::engine {

absl::StatusOr<cache::CacheLayout> CacheLayoutOf(const models::Model& model);

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_CACHE_LAYOUT_H_
