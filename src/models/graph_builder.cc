#include "models/graph_builder.h"

namespace everwarm::models {

GraphBuilder::GraphBuilder(ggml_context* context, ggml_cgraph* graph,
                           StepState* state, GraphNodes* nodes, uint32_t rows,
                           uint32_t wanted)
    : context_(context),
      graph_(graph),
      state_(state),
      nodes_(nodes),
      num_rows_(rows),
      num_wanted_(wanted) {
  inputs_.tokens = NewInput(rows);
  inputs_.positions = NewInput(rows);
  if (wanted > 0 && wanted < rows) {
    inputs_.wanted = NewInput(wanted);
    inputs_.wanted_positions = NewInput(wanted);
  }
}

ggml_tensor* GraphBuilder::NewInput(uint32_t size) {
  ggml_tensor* input = ggml_new_tensor_1d(context_, GGML_TYPE_I32, size);
  ggml_set_input(input);
  return Always(input);  // for its memory
}

ggml_tensor* GraphBuilder::Embed(ggml_tensor* table) {
  return ggml_get_rows(context_, table, inputs_.tokens);
}

ggml_tensor* GraphBuilder::Norm(ggml_tensor* x, ggml_tensor* weight,
                                float epsilon) {
  return ggml_mul(context_, ggml_rms_norm(context_, x, epsilon), weight);
}

ggml_tensor* GraphBuilder::Linear(ggml_tensor* matrix, ggml_tensor* x,
                                  ggml_tensor* bias) {
  const PackedMatrix* packed = PackedOf(matrix);
  ggml_tensor* product = packed == nullptr
                             ? ggml_mul_mat(context_, matrix, x)
                             : nodes_->linear.Add(context_, *packed, x);
  return bias == nullptr ? product : ggml_add(context_, product, bias);
}

ggml_tensor* GraphBuilder::ExpertLinear(const LinearWeights& weights,
                                        ggml_tensor* x, ggml_tensor* experts) {
  ggml_tensor* product = ggml_mul_mat_id(context_, weights.matrix, x, experts);
  return weights.bias == nullptr
             ? product
             : ggml_add_id(context_, product, weights.bias, experts);
}

ggml_tensor* GraphBuilder::RowExactLinear(const LinearWeights& weights,
                                          ggml_tensor* x) {
  if (inputs_.zeros == nullptr) {
    inputs_.zeros = NewInput(num_rows_);
  }
  const int64_t rows = x->ne[1];
  ggml_tensor* product = ExpertLinear(
      weights, ggml_reshape_3d(context_, x, x->ne[0], 1, rows),
      ggml_view_2d(context_, inputs_.zeros, 1, rows, sizeof(int32_t), 0));
  return ggml_reshape_2d(context_, product, product->ne[0], rows);
}

ggml_tensor* GraphBuilder::HeadLinear(const LinearWeights& weights,
                                      ggml_tensor* x) {
  const int64_t heads = x->ne[1];
  if (inputs_.heads == nullptr) {
    inputs_.heads = NewInput(num_rows_ * static_cast<uint32_t>(heads));
  }
  return ExpertLinear(
      weights, x,
      ggml_view_2d(context_, inputs_.heads, heads, x->ne[2],
                   static_cast<size_t>(heads) * sizeof(int32_t), 0));
}

ggml_tensor* GraphBuilder::SplitHeads(ggml_tensor* x, const Heads& heads) {
  return ggml_reshape_3d(context_, x, heads.dim, heads.count, x->ne[1]);
}

ggml_tensor* GraphBuilder::Columns(ggml_tensor* x, int64_t first,
                                   int64_t width) {
  return ggml_view_2d(context_, x, width, x->ne[1], x->nb[1],
                      first * sizeof(float));
}

ggml_tensor* GraphBuilder::HeadColumns(ggml_tensor* x, int64_t first,
                                       const Heads& heads) {
  return ggml_view_3d(context_, x, heads.dim, heads.count, x->ne[1],
                      heads.dim * sizeof(float), x->nb[1],
                      first * sizeof(float));
}

ggml_tensor* GraphBuilder::Rope(ggml_tensor* x, const RopeParameters& rope,
                                ggml_tensor* factors, bool only_wanted) {
  ggml_tensor* positions = only_wanted && inputs_.wanted_positions != nullptr
                               ? inputs_.wanted_positions
                               : inputs_.positions;
  return ggml_rope_ext(
      context_, x, positions, factors, static_cast<int>(rope.dims), rope.type,
      static_cast<int>(rope.original_context), rope.freq_base, rope.freq_scale,
      rope.ext_factor, rope.attn_factor, rope.beta_fast, rope.beta_slow);
}

ggml_tensor* GraphBuilder::Wanted(ggml_tensor* x) {
  return inputs_.wanted == nullptr ? x
                                   : ggml_get_rows(context_, x, inputs_.wanted);
}

void GraphBuilder::Append(uint32_t layer, ggml_tensor* k, ggml_tensor* v,
                          bool only_wanted) {
  nodes_->attention.push_back({&state_->GroupOf(layer),
                               state_->OffsetsOf(layer),
                               only_wanted && inputs_.wanted != nullptr});
  // Nothing may read it: the last layer of a step without logits.
  appended_ = Always(AddAppend(context_, &nodes_->attention.back(), k, v));
}

ggml_tensor* GraphBuilder::Attend(ggml_tensor* q, ggml_tensor* sinks) {
  return AddAttend(context_, &nodes_->attention.back(), {q, sinks, appended_});
}

RecurrentNode* GraphBuilder::NewRecurrent(size_t state_offset) {
  nodes_->recurrent.push_back({&state_->recurrent(), state_offset});
  return &nodes_->recurrent.back();
}

ggml_tensor* GraphBuilder::Always(ggml_tensor* node) {
  ggml_build_forward_expand(graph_, node);
  return node;
}

ggml_tensor* GraphBuilder::ShortConv(uint32_t layer,
                                     const ShortConvSources& sources) {
  return Always(AddShortConv(
      context_, NewRecurrent(state_->StateOf(layer).convolution), sources));
}

ggml_tensor* GraphBuilder::Scan(uint32_t layer, const ScanSources& sources) {
  return Always(AddScan(
      context_, NewRecurrent(state_->StateOf(layer).recurrence), sources));
}

ggml_tensor* GraphBuilder::DeltaRule(uint32_t layer,
                                     const DeltaRuleSources& sources) {
  return Always(AddDeltaRule(
      context_, NewRecurrent(state_->StateOf(layer).recurrence), sources));
}

}  // namespace everwarm::models
