// Qwen 3 with experts in every layer.
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {

absl::StatusOr<std::unique_ptr<Architecture>> MakeQwen3Moe(
    Weights& weights, const LoadOptions& /*options*/) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(weights.file(),
                          {.rope_type = GGML_ROPE_TYPE_NEOX,
                           .experts = KeyRules::Experts::kAlways}));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t) {
    return DeclareUsualLayer(scope, h, {.head_norms = true});
  });
}

}  // namespace everwarm::models
