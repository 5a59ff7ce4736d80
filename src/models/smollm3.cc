// SmolLM3: Llama with some layers whose heads are not rotated.
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {
namespace {

// The last of so many layers does not rotate.
constexpr uint32_t kNoRopePeriod = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeSmolLm3(
    Weights& weights, const LoadOptions& /*options*/) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(weights.file(),
                          {.rope_type = GGML_ROPE_TYPE_NORMAL}));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t index) {
    DecoderLayer layer = DeclareUsualLayer(scope, h, {});
    if (index % kNoRopePeriod == kNoRopePeriod - 1) {
      layer.attention.rope.reset();
    }
    return layer;
  });
}

}  // namespace everwarm::models
