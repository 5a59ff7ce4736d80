// Gemma 3 (text): layers with a sliding window, and every few one without.
#include <cmath>

#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {
namespace {

// Unless the file says otherwise, every sixth layer sees all positions.
constexpr uint32_t kWindowPeriod = 6;
constexpr float kWindowFreqBase = 10000.0f;

// The 27B model, known by its layers, scales scores by the width of a head as
// it would be without attention.key_length.
constexpr uint32_t kLayersOf27B = 62;

absl::StatusOr<Hyperparameters> ReadGemma3(const GgufFile& file) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NEOX}));
  EW_RETURN_IF_ERROR(ReadWindows(file, kWindowPeriod, h));
  EW_ASSIGN_OR_RETURN(
      h.final_logit_softcap,
      file.FloatOr(h.architecture + ".final_logit_softcapping", 0.0f));
  h.embedding_scale = std::sqrt(static_cast<float>(h.embedding_dim));
  if (h.num_layers == kLayersOf27B) {
    h.attention_scale =
        1.0f / std::sqrt(static_cast<float>(h.embedding_dim / h.num_heads));
  }
  return h;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeGemma3(
    Weights& weights, const LoadOptions& /*options*/) {
  EW_ASSIGN_OR_RETURN(const Hyperparameters h, ReadGemma3(weights.file()));
  EW_ASSIGN_OR_RETURN(RopeParameters window_rope,
                      ReadWindowRope(weights.file(), h, kWindowFreqBase));
  window_rope.freq_scale = 1.0f;
  const int64_t width = h.embedding_dim;
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t index) {
    DecoderLayer layer = DeclareUsualLayer(scope, h, {.head_norms = true});
    layer.attn_post_norm = scope.Vector("post_attention_norm", width);
    layer.ffn_post_norm = scope.Vector("post_ffw_norm", width);
    layer.feed_forward.activation = Activation::kGelu;
    if (h.windows[index] != 0) {
      layer.attention.rope = window_rope;
    }
    return layer;
  });
}

}  // namespace everwarm::models
