// Phi 3 and 4: one matrix for queries, keys and values, one for gate and up,
// and rope factors for short and for long contexts.
//
// Files name a window; llama.cpp computes these models without one, and so do
// we.
#include "base/status_macros.h"
#include "models/decoder.h"

namespace everwarm::models {

absl::StatusOr<std::unique_ptr<Architecture>> MakePhi3(
    Weights& weights, const LoadOptions& options) {
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(weights.file(), {.rope_type = GGML_ROPE_TYPE_NEOX,
                                           .longrope = true}));
  EW_ASSIGN_OR_RETURN(ggml_tensor* const factors,
                      DeclareRopeFactors(weights, options.context, h));
  return MakeDecoder(weights, h, [&](TensorScope& scope, uint32_t) {
    DecoderLayer layer;
    layer.attn_norm = scope.Vector("attn_norm", h.embedding_dim);
    layer.attention = DeclareAttention(scope, h, {.fused_qkv = true});
    layer.attention.rope_factors = factors;
    layer.ffn_norm = scope.Vector("ffn_norm", h.embedding_dim);
    layer.feed_forward = DeclareFusedFeedForward(scope, h);
    return layer;
  });
}

}  // namespace everwarm::models
