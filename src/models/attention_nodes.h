// Attention over block tables as nodes of a ggml graph.
//
// A graph is built once for a number of rows and computed many times; what
// changes from step to step (block tables, positions) is in StepState
// (models/step_state.h), whose parts the nodes point to.
#ifndef EVERWARM_MODELS_ATTENTION_NODES_H_
#define EVERWARM_MODELS_ATTENTION_NODES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ggml.h"
#include "kernels/attention.h"
#include "models/hyperparameters.h"
#include "models/model.h"

namespace everwarm::models {

// The attention work of one layer group in the running step.
struct GroupStep {
  kernels::AttentionShape shape;
  // All rows of the step: they append, and attend in every layer but the last.
  std::vector<kernels::AttentionRow> rows;
  kernels::AttentionPlan plan;
  // Rows that want logits: the only ones that attend in the last layer. Planned
  // only when they are some but not all, and the last layer is of this group.
  std::vector<kernels::AttentionRow> wanted;
  kernels::AttentionPlan wanted_plan;
};

// What kernels need to know of a group's layers.
kernels::AttentionShape MakeShape(const Hyperparameters& hyperparameters,
                                  const ModelGroup& group,
                                  uint32_t block_tokens);

// What the two nodes of one layer read; lives as long as the graph.
struct AttentionNode {
  GroupStep* step = nullptr;
  kernels::LayerOffsets offsets;
  bool wanted_only = false;
};

// A node that writes the rows' KV into their blocks and rearms the layer's
// plan. Shapes: k [rows, num_kv_heads * k_dim], v [rows, num_kv_heads * v_dim],
// both contiguous; v is null where values lie in keys. Its result is only for
// AddAttend() to depend on.
ggml_tensor* AddAppend(ggml_context* context, AttentionNode* node,
                       ggml_tensor* k, ggml_tensor* v);

struct AttendSources {
  ggml_tensor* q = nullptr;         // [rows, num_heads * k_dim], contiguous
  ggml_tensor* sinks = nullptr;     // [num_heads], or null
  ggml_tensor* appended = nullptr;  // AddAppend()
};
// The attention itself, after what was appended.
// Shapes: result [rows, num_heads * v_dim].
ggml_tensor* AddAttend(ggml_context* context, AttentionNode* node,
                       const AttendSources& sources);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_ATTENTION_NODES_H_
