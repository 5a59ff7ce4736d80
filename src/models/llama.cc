// Llama and what shares its architecture (SmolLM2, Mistral, Mixtral, ...).
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {

absl::StatusOr<std::unique_ptr<Architecture>> MakeLlama(
    Weights& weights, const LoadOptions& options) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(weights.file(),
                          {.rope_type = GGML_ROPE_TYPE_NORMAL,
                           .longrope = true,
                           .experts = KeyRules::Experts::kSome}));
  EW_ASSIGN_OR_RETURN(ggml_tensor* const factors,
                      DeclareRopeFactors(weights, options.context, h));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t) {
    DecoderLayer layer = DeclareUsualLayer(scope, h, {});
    layer.attention.rope_factors = factors;
    return layer;
  });
}

}  // namespace everwarm::models
