// Sizes of recurrent layers as the keys "ssm" give them.
#ifndef EVERWARM_MODELS_SSM_SIZES_H_
#define EVERWARM_MODELS_SSM_SIZES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/hyperparameters.h"

namespace everwarm::models {

struct SsmSizes {
  uint32_t taps = 0;  // of the convolution
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t groups = 0;  // divides heads
  uint32_t state_dim = 0;

  uint32_t inner() const { return heads * head_dim; }
  // Channels of the convolution: the heads' inputs, and two vectors of
  // state_dim for each group.
  uint32_t channels() const { return inner() + 2 * groups * state_dim; }
  // Of one layer.
  StateSize State() const {
    return {(taps - 1) * channels(), heads * state_dim * head_dim};
  }
};

// Errors: kInvalidArgument, a key is missing or absurd.
absl::StatusOr<SsmSizes> ReadSsmSizes(const GgufFile& file,
                                      const std::string& architecture);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_SSM_SIZES_H_
