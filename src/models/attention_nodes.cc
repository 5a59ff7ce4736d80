#include "models/attention_nodes.h"

#include <algorithm>

#include "absl/types/span.h"

namespace everwarm::models {
namespace {

void ComputeAppend(ggml_tensor* result, int thread, int num_threads,
                   void* user_data) {
  const auto* node = static_cast<const AttentionNode*>(user_data);
  if (thread == 0) {
    (node->wanted_only ? node->step->wanted_plan : node->step->plan)
        .BeginLayer();
  }
  const ggml_tensor* v = result->src[1];
  kernels::AppendKv(node->step->shape, node->offsets, node->step->rows,
                    static_cast<const float*>(result->src[0]->data),
                    v == nullptr ? nullptr : static_cast<const float*>(v->data),
                    static_cast<uint32_t>(thread),
                    static_cast<uint32_t>(num_threads));
}

void ComputeAttend(ggml_tensor* result, int thread, int /*num_threads*/,
                   void* user_data) {
  const auto* node = static_cast<const AttentionNode*>(user_data);
  const ggml_tensor* sinks = result->src[2];
  (node->wanted_only ? node->step->wanted_plan : node->step->plan)
      .Run(
          node->offsets,
          {static_cast<const float*>(result->src[0]->data),
           sinks == nullptr ? nullptr : static_cast<const float*>(sinks->data)},
          static_cast<float*>(result->data), static_cast<uint32_t>(thread));
}

}  // namespace

kernels::AttentionShape MakeShape(const Hyperparameters& hyperparameters,
                                  const ModelGroup& group,
                                  uint32_t block_tokens) {
  const BySpan<LayerScheme>& scheme = group.scheme;
  const Rotation rotation = RotationOf(hyperparameters, scheme);
  return {.block_tokens = block_tokens,
          .num_heads = hyperparameters.num_heads,
          .num_kv_heads = hyperparameters.num_kv_heads,
          .k_dim = hyperparameters.k_dim,
          .v_dim = hyperparameters.v_dim,
          .v_in_k = hyperparameters.latent,
          .scale = hyperparameters.attention_scale,
          .window = group.window,
          .k_rotation = rotation.k,
          .v_rotation = rotation.v,
          .k_codec = scheme.rest.k,
          .v_codec = scheme.rest.v,
          .first = {scheme.first_spans * block_tokens, scheme.first.k,
                    scheme.first.v}};
}

ggml_tensor* AddAppend(ggml_context* context, AttentionNode* node,
                       ggml_tensor* k, ggml_tensor* v) {
  ggml_tensor* sources[] = {k, v};
  return ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, sources,
                        v == nullptr ? 1 : 2, &ComputeAppend, GGML_N_TASKS_MAX,
                        node);
}

ggml_tensor* AddAttend(ggml_context* context, AttentionNode* node,
                       const AttendSources& sources) {
  const kernels::AttentionShape& shape = node->step->shape;
  const int64_t rows =
      ggml_nelements(sources.q) / (shape.num_heads * shape.k_dim);
  ggml_tensor* all[] = {sources.q, sources.appended, sources.sinks};
  return ggml_custom_4d(context, GGML_TYPE_F32, shape.num_heads * shape.v_dim,
                        rows, 1, 1, all, sources.sinks == nullptr ? 2 : 3,
                        &ComputeAttend, GGML_N_TASKS_MAX, node);
}

}  // namespace everwarm::models
