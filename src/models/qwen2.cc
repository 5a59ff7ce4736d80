// Qwen 2 and 2.5: Llama's layers with biases, rotated by halves of a head.
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {

absl::StatusOr<std::unique_ptr<Architecture>> MakeQwen2(
    Weights& weights, const LoadOptions& /*options*/) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(weights.file(), {.rope_type = GGML_ROPE_TYPE_NEOX}));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t) {
    return DeclareUsualLayer(scope, h, {});
  });
}

}  // namespace everwarm::models
