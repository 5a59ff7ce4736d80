// What tokens and states of a model take, over all its layers.
//
// Pure.
#ifndef EVERWARM_MODELS_KV_SIZES_H_
#define EVERWARM_MODELS_KV_SIZES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "models/model.h"

namespace everwarm::models {

struct KvSizes {
  // Of all groups that have keys and values.
  uint64_t bytes_per_token = 0;
  // Tokens at the start of every sequence that take other bytes each; 0: none.
  uint64_t first_tokens = 0;
  uint64_t bytes_per_first_token = 0;
  // Of all recurrent layers, at one position.
  uint64_t state_bytes = 0;
};

KvSizes KvSizesOf(absl::Span<const ModelGroup> groups);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_KV_SIZES_H_
