// gpt-oss: experts in every layer, every other layer with a window, and a sink
// in each head's softmax.
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {
namespace {

// Unless the file says otherwise, every second layer sees all positions.
constexpr uint32_t kWindowPeriod = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeGptOss(
    Weights& weights, const LoadOptions& /*options*/) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NEOX,
                                 .experts = KeyRules::Experts::kAlways}));
  EW_RETURN_IF_ERROR(ReadWindows(file, kWindowPeriod, h));
  EW_ASSIGN_OR_RETURN(const RopeParameters window_rope,
                      ReadWindowRope(file, h, h.rope.freq_base));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t index) {
    scope.RequireBiases();
    DecoderLayer layer;
    layer.attn_norm = scope.Vector("attn_norm", h.embedding_dim);
    layer.attention = DeclareAttention(scope, h, {.sinks = true});
    if (h.windows[index] != 0) {
      layer.attention.rope = window_rope;
    }
    layer.ffn_norm = scope.Vector("post_attention_norm", h.embedding_dim);
    layer.experts = DeclareExperts(scope, h);
    layer.experts.activation = Activation::kClampedSilu;
    layer.experts.routing = Routing::kChooseThenSoftmax;
    return layer;
  });
}

}  // namespace everwarm::models
