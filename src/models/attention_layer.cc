#include "models/attention_layer.h"

#include "base/status_macros.h"

namespace everwarm::models {
namespace {

// Columns [first, first + width) of x, as a tensor of their own.
ggml_tensor* Columns(GraphBuilder& graph, ggml_tensor* x, int64_t first,
                     int64_t width) {
  return ggml_cont(graph.context(), graph.Columns(x, first, width));
}

// Of x with two heads of `heads.dim` for each of `heads`, the first ones
// (`which` 0) or the second ones, as a tensor of their own.
ggml_tensor* EveryOther(GraphBuilder& graph, ggml_tensor* x, const Heads& heads,
                        int64_t which) {
  ggml_context* context = graph.context();
  ggml_tensor* some = ggml_view_3d(context, x, heads.dim, heads.count, x->ne[1],
                                   2 * heads.dim * sizeof(float), x->nb[1],
                                   which * heads.dim * sizeof(float));
  return ggml_cont_2d(context, some, int64_t{heads.dim} * heads.count,
                      x->ne[1]);
}

// Projected heads, normed and rotated.
struct HeadParts {
  Heads heads;
  ggml_tensor* norm = nullptr;
};
ggml_tensor* TurnHeads(GraphBuilder& graph, const Hyperparameters& h,
                       const AttentionWeights& weights, const HeadParts& parts,
                       ggml_tensor* projected, bool only_wanted) {
  ggml_tensor* heads = graph.SplitHeads(projected, parts.heads);
  if (parts.norm != nullptr) {
    heads = graph.Norm(heads, parts.norm, h.rms_epsilon);
  }
  return weights.rope ? graph.Rope(heads, *weights.rope, weights.rope_factors,
                                   only_wanted)
                      : heads;
}

}  // namespace

AttentionWeights DeclareAttention(TensorScope& scope, const Hyperparameters& h,
                                  const AttentionParts& parts) {
  const int64_t width = h.embedding_dim;
  const int64_t q_width = int64_t{h.num_heads} * h.k_dim;
  const int64_t k_width = int64_t{h.num_kv_heads} * h.k_dim;
  const int64_t v_width = int64_t{h.num_kv_heads} * h.v_dim;
  AttentionWeights weights;
  if (parts.fused_qkv) {
    weights.qkv = scope.Linear("attn_qkv", width, q_width + k_width + v_width);
  } else {
    weights.q =
        scope.Linear("attn_q", width, parts.gated ? 2 * q_width : q_width);
    weights.k = scope.Linear("attn_k", width, k_width);
    weights.v = scope.Linear("attn_v", width, v_width);
  }
  weights.o =
      scope.Linear("attn_output", int64_t{h.num_heads} * h.v_dim, width);
  if (parts.head_norms) {
    weights.q_norm = scope.Vector("attn_q_norm", h.k_dim);
    weights.k_norm = scope.Vector("attn_k_norm", h.k_dim);
  }
  if (parts.sinks) {
    weights.sinks = scope.Vector("attn_sinks", h.num_heads);
  }
  weights.gated = parts.gated;
  weights.rope = h.rope;
  return weights;
}

absl::StatusOr<ggml_tensor*> DeclareRopeFactors(Weights& weights,
                                                uint32_t context,
                                                Hyperparameters& h) {
  constexpr char kLong[] = "rope_factors_long.weight";
  constexpr char kShort[] = "rope_factors_short.weight";
  const int64_t frequencies = h.rope.dims / 2;
  if (!h.rope.longrope && !weights.Has(kLong) && !weights.Has(kShort)) {
    return weights.OptionalVector("rope_freqs.weight", frequencies);
  }
  EW_ASSIGN_OR_RETURN(ggml_tensor* const long_factors,
                      weights.Vector(kLong, frequencies));
  EW_ASSIGN_OR_RETURN(ggml_tensor* const short_factors,
                      weights.Vector(kShort, frequencies));
  const uint32_t longest = context == 0 ? h.train_context : context;
  const bool is_long = longest > h.rope.original_context;
  h.variant = is_long ? "rope-long" : "rope-short";
  return is_long ? long_factors : short_factors;
}

ggml_tensor* AddAttention(GraphBuilder& graph, const Hyperparameters& h,
                          const AttentionWeights& weights, uint32_t layer,
                          ggml_tensor* x, bool only_wanted) {
  const HeadParts q_parts = {{h.num_heads, h.k_dim}, weights.q_norm};
  const HeadParts k_parts = {{h.num_kv_heads, h.k_dim}, weights.k_norm};
  const int64_t q_width = int64_t{h.num_heads} * h.k_dim;
  const int64_t k_width = int64_t{h.num_kv_heads} * h.k_dim;
  const int64_t v_width = int64_t{h.num_kv_heads} * h.v_dim;
  ggml_tensor* qkv =
      weights.qkv.matrix == nullptr ? nullptr : graph.Linear(weights.qkv, x);
  ggml_tensor* k = qkv == nullptr ? graph.Linear(weights.k, x)
                                  : Columns(graph, qkv, q_width, k_width);
  k = TurnHeads(graph, h, weights, k_parts, k, false);
  ggml_tensor* v = qkv == nullptr
                       ? graph.Linear(weights.v, x)
                       : Columns(graph, qkv, q_width + k_width, v_width);
  graph.Append(layer, k, v, only_wanted);
  if (only_wanted && graph.wanted() == 0) {
    return nullptr;
  }
  const auto asking = [&](ggml_tensor* rows) {
    return only_wanted ? graph.Wanted(rows) : rows;
  };
  ggml_tensor* q = qkv == nullptr ? graph.Linear(weights.q, asking(x))
                                  : asking(Columns(graph, qkv, 0, q_width));
  ggml_tensor* gate = nullptr;
  if (weights.gated) {
    gate = EveryOther(graph, q, q_parts.heads, 1);
    q = EveryOther(graph, q, q_parts.heads, 0);
  }
  q = TurnHeads(graph, h, weights, q_parts, q, only_wanted);
  ggml_tensor* attended = graph.Attend(q, weights.sinks);
  if (gate != nullptr) {
    attended = ggml_mul(graph.context(), attended,
                        ggml_sigmoid(graph.context(), gate));
  }
  return graph.Linear(weights.o, attended);
}

}  // namespace everwarm::models
