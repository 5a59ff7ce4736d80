#include "models/recurrent_nodes.h"

namespace everwarm::models {
namespace {

const float* Floats(const ggml_tensor* tensor) {
  return tensor == nullptr ? nullptr : static_cast<const float*>(tensor->data);
}

// A source [rows, width].
kernels::RowMatrix Rows(const ggml_tensor* tensor) {
  return {Floats(tensor), tensor->nb[1] / sizeof(float)};
}
// A source [rows, heads, dim].
kernels::RowMatrix HeadRows(const ggml_tensor* tensor) {
  return {Floats(tensor), tensor->nb[2] / sizeof(float)};
}

uint32_t Size(int64_t elements) { return static_cast<uint32_t>(elements); }

void ComputeShortConv(ggml_tensor* result, int thread, int num_threads,
                      void* user_data) {
  const auto* node = static_cast<const RecurrentNode*>(user_data);
  const ggml_tensor* weights = result->src[1];
  kernels::ShortConv({.channels = Size(weights->ne[1]),
                      .taps = Size(weights->ne[0]),
                      .state_offset = node->state_offset,
                      .weights = Floats(weights),
                      .bias = Floats(result->src[2]),
                      .in = Rows(result->src[0]),
                      .out = static_cast<float*>(result->data)},
                     node->step->sequences(), Size(thread), Size(num_threads));
}

void ComputeScan(ggml_tensor* result, int thread, int num_threads,
                 void* user_data) {
  const auto* node = static_cast<const RecurrentNode*>(user_data);
  const ggml_tensor* x = result->src[0];
  const ggml_tensor* b = result->src[3];
  kernels::Scan({.heads = Size(x->ne[1]),
                 .head_dim = Size(x->ne[0]),
                 .state_dim = Size(b->ne[0]),
                 .groups = Size(b->ne[1]),
                 .state_offset = node->state_offset,
                 .x = HeadRows(x),
                 .dt = Rows(result->src[1]),
                 .decay = Rows(result->src[2]),
                 .b = HeadRows(b),
                 .c = HeadRows(result->src[4]),
                 .skip = Floats(result->src[5]),
                 .out = static_cast<float*>(result->data)},
                node->step->sequences(), Size(thread), Size(num_threads));
}

void ComputeDeltaRule(ggml_tensor* result, int thread, int num_threads,
                      void* user_data) {
  const auto* node = static_cast<const RecurrentNode*>(user_data);
  const ggml_tensor* k = result->src[1];
  const ggml_tensor* v = result->src[2];
  kernels::DeltaRule({.heads = Size(v->ne[1]),
                      .key_heads = Size(k->ne[1]),
                      .key_dim = Size(k->ne[0]),
                      .value_dim = Size(v->ne[0]),
                      .state_offset = node->state_offset,
                      .q = HeadRows(result->src[0]),
                      .k = HeadRows(k),
                      .v = HeadRows(v),
                      .decay = Rows(result->src[3]),
                      .beta = Rows(result->src[4]),
                      .out = static_cast<float*>(result->data)},
                     node->step->sequences(), Size(thread), Size(num_threads));
}

}  // namespace

void RecurrentStep::Prepare(const StepInput& input, uint32_t group) {
  first_.assign(input.sequences.size() + 1, 0);
  for (const StepRow& row : input.rows) {
    ++first_[row.sequence + 1];
  }
  for (size_t s = 0; s < input.sequences.size(); ++s) {
    first_[s + 1] += first_[s];
  }
  rows_.resize(input.rows.size());
  sequences_.clear();
  for (size_t s = 0; s < input.sequences.size(); ++s) {
    const uint32_t count = first_[s + 1] - first_[s];
    if (count > 0) {
      sequences_.push_back(
          {input.sequences[s].groups[group][0],
           absl::MakeConstSpan(rows_).subspan(first_[s], count)});
    }
  }
  for (uint32_t r = 0; r < input.rows.size(); ++r) {
    rows_[first_[input.rows[r].sequence]++] = r;
  }
}

ggml_tensor* AddShortConv(ggml_context* context, RecurrentNode* node,
                          const ShortConvSources& sources) {
  ggml_tensor* all[] = {sources.in, sources.weights, sources.bias};
  return ggml_custom_4d(context, GGML_TYPE_F32, sources.in->ne[0],
                        sources.in->ne[1], 1, 1, all,
                        sources.bias == nullptr ? 2 : 3, &ComputeShortConv,
                        GGML_N_TASKS_MAX, node);
}

ggml_tensor* AddScan(ggml_context* context, RecurrentNode* node,
                     const ScanSources& sources) {
  const ggml_tensor* x = sources.x;
  ggml_tensor* all[] = {sources.x, sources.dt, sources.decay,
                        sources.b, sources.c,  sources.skip};
  return ggml_custom_4d(context, GGML_TYPE_F32, x->ne[0] * x->ne[1], x->ne[2],
                        1, 1, all, 6, &ComputeScan, GGML_N_TASKS_MAX, node);
}

ggml_tensor* AddDeltaRule(ggml_context* context, RecurrentNode* node,
                          const DeltaRuleSources& sources) {
  const ggml_tensor* v = sources.v;
  ggml_tensor* all[] = {sources.q, sources.k, sources.v, sources.decay,
                        sources.beta};
  return ggml_custom_4d(context, GGML_TYPE_F32, v->ne[0] * v->ne[1], v->ne[2],
                        1, 1, all, 5, &ComputeDeltaRule, GGML_N_TASKS_MAX,
                        node);
}

}  // namespace everwarm::models
