#include "models/mamba2_layer.h"

namespace everwarm::models {

Mamba2Weights DeclareMamba2(TensorScope& scope, const Hyperparameters& h,
                            const SsmSizes& sizes) {
  const int64_t width = h.embedding_dim;
  const int64_t inner = sizes.inner();
  const int64_t channels = sizes.channels();
  Mamba2Weights weights;
  weights.in =
      scope.Linear("ssm_in", width, inner + channels + int64_t{sizes.heads});
  weights.taps = scope.Numbers("ssm_conv1d.weight", sizes.taps, channels);
  weights.taps_bias = scope.Numbers("ssm_conv1d.bias", channels);
  weights.dt_bias = scope.Numbers("ssm_dt.bias", sizes.heads);
  weights.a = scope.Numbers("ssm_a", 1, sizes.heads);
  weights.skip = scope.Numbers("ssm_d", 1, sizes.heads);
  weights.norm =
      scope.Numbers("ssm_norm.weight", inner / sizes.groups, sizes.groups);
  weights.out = scope.Linear("ssm_out", inner, width);
  return weights;
}

ggml_tensor* AddMamba2(GraphBuilder& graph, const Hyperparameters& h,
                       const SsmSizes& sizes, const Mamba2Weights& weights,
                       const LayerInput& input) {
  ggml_context* context = graph.context();
  const int64_t inner = sizes.inner();
  const int64_t channels = sizes.channels();
  ggml_tensor* projected = graph.Linear(weights.in, input.x);

  ggml_tensor* mixed = graph.ShortConv(
      input.layer, {.in = graph.Columns(projected, inner, channels),
                    .weights = weights.taps,
                    .bias = weights.taps_bias});
  mixed = ggml_silu(context, mixed);
  const Heads groups = {sizes.groups, sizes.state_dim};

  ggml_tensor* dt = ggml_cont(
      context, graph.Columns(projected, inner + channels, sizes.heads));
  dt = ggml_softplus(context, ggml_add(context, dt, weights.dt_bias));
  ggml_tensor* a = ggml_reshape_1d(context, weights.a, sizes.heads);
  ggml_tensor* scanned = graph.Scan(
      input.layer,
      {.x = graph.HeadColumns(mixed, 0, {sizes.heads, sizes.head_dim}),
       .dt = dt,
       .decay = ggml_exp(context, ggml_mul(context, dt, a)),
       .b = graph.HeadColumns(mixed, inner, groups),
       .c = graph.HeadColumns(
           mixed, inner + int64_t{sizes.groups} * sizes.state_dim, groups),
       .skip = weights.skip});

  ggml_tensor* gate = ggml_cont(context, graph.Columns(projected, 0, inner));
  if (input.only_wanted) {
    if (graph.wanted() == 0) {
      return nullptr;
    }
    scanned = graph.Wanted(scanned);
    gate = graph.Wanted(gate);
  }
  ggml_tensor* gated = ggml_swiglu_split(context, gate, scanned);
  gated = graph.SplitHeads(
      gated, {sizes.groups, static_cast<uint32_t>(inner / sizes.groups)});
  gated = graph.Norm(gated, weights.norm, h.rms_epsilon);
  return graph.Linear(weights.out,
                      ggml_reshape_2d(context, gated, inner, gated->ne[2]));
}

}  // namespace everwarm::models
