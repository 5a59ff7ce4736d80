// Parts that the graphs of all architectures are made of.
//
// Activations are [rows, width] in our order, ggml's ne = {width, rows}.
#ifndef EVERWARM_MODELS_GRAPH_BUILDER_H_
#define EVERWARM_MODELS_GRAPH_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "ggml.h"
#include "models/attention_nodes.h"
#include "models/hyperparameters.h"
#include "models/linear_nodes.h"
#include "models/recurrent_nodes.h"
#include "models/step_state.h"
#include "models/weights.h"

namespace everwarm::models {

// Tensors that a step fills before the graph is computed.
struct GraphInputs {
  ggml_tensor* tokens = nullptr;     // i32 [rows]
  ggml_tensor* positions = nullptr;  // i32 [rows]
  // Indices and positions of the rows that want logits: i32 [wanted]. Null when
  // all rows do, or none.
  ggml_tensor* wanted = nullptr;
  ggml_tensor* wanted_positions = nullptr;
  // i32 [rows], all 0; null when nobody asked for it.
  ggml_tensor* zeros = nullptr;
  // i32 [rows, heads], for each row the heads from 0; null when nobody asked
  // for it.
  ggml_tensor* heads = nullptr;
};

// What the nodes of a graph point to. Deques: their elements stay where they
// are.
struct GraphNodes {
  std::deque<AttentionNode> attention;
  std::deque<RecurrentNode> recurrent;
  LinearNodes linear;
};

// One head's projections: what Rope() needs to know of a row.
struct Heads {
  uint32_t count = 0;
  uint32_t dim = 0;
};

// What a part of a layer that mixes positions gets.
struct LayerInput {
  uint32_t layer = 0;
  ggml_tensor* x = nullptr;  // [rows, embedding_dim]
  // It is the last layer: only rows that want logits are asked for.
  bool only_wanted = false;
};

// Threads: one.
class GraphBuilder {
 public:
  // `context` holds the tensors; `nodes` what they point to, and must live as
  // long as the graph.
  GraphBuilder(ggml_context* context, ggml_cgraph* graph, StepState* state,
               GraphNodes* nodes, uint32_t rows, uint32_t wanted);

  ggml_context* context() const { return context_; }
  const GraphInputs& inputs() const { return inputs_; }
  uint32_t wanted() const { return num_wanted_; }

  // Rows of the embedding table for the step's tokens.
  ggml_tensor* Embed(ggml_tensor* table);
  // RMS norm over the innermost dimension, times `weight`.
  ggml_tensor* Norm(ggml_tensor* x, ggml_tensor* weight, float epsilon);
  // x times the matrix, plus `bias` unless null.
  ggml_tensor* Linear(ggml_tensor* matrix, ggml_tensor* x,
                      ggml_tensor* bias = nullptr);
  ggml_tensor* Linear(const LinearWeights& weights, ggml_tensor* x) {
    return Linear(weights.matrix, x, weights.bias);
  }
  // The same by Weights::Experts(): x [rows, 1 or used, inputs] times the
  // matrices that `experts` (i32 [rows, used]) name: [rows, used, outputs].
  ggml_tensor* ExpertLinear(const LinearWeights& weights, ggml_tensor* x,
                            ggml_tensor* experts);
  // The same as Linear() by one "expert", so that a row's result depends on
  // that row alone whatever the type: x [rows, inputs].
  ggml_tensor* RowExactLinear(const LinearWeights& weights, ggml_tensor* x);
  // Each head of x [rows, heads, inputs] times its own matrix, by
  // Weights::Experts(): [rows, heads, outputs]. A row's result depends on that
  // row alone whatever the type. `heads` is the same in all calls.
  ggml_tensor* HeadLinear(const LinearWeights& weights, ggml_tensor* x);
  // [rows, heads * dim] as [rows, heads, dim].
  ggml_tensor* SplitHeads(ggml_tensor* x, const Heads& heads);
  // Columns [first, first + width) of x [rows, ...], as a view: its rows lie
  // apart.
  ggml_tensor* Columns(ggml_tensor* x, int64_t first, int64_t width);
  // The same, as [rows, heads, dim].
  ggml_tensor* HeadColumns(ggml_tensor* x, int64_t first, const Heads& heads);
  // Rotates [rows, heads, dim]; `only_wanted`: the rows are those of Wanted().
  ggml_tensor* Rope(ggml_tensor* x, const RopeParameters& rope,
                    ggml_tensor* factors, bool only_wanted);

  // The rows that want logits, of x with all rows.
  ggml_tensor* Wanted(ggml_tensor* x);

  // Writes keys and values of all rows; Attend() of the same layer follows.
  // `v` is null where values lie in keys.
  // `only_wanted`: the queries will be those of Wanted().
  void Append(uint32_t layer, ggml_tensor* k, ggml_tensor* v, bool only_wanted);
  // `sinks` [heads] take part in each softmax; null: none.
  // Shapes: result [rows or wanted, heads * v_dim].
  ggml_tensor* Attend(ggml_tensor* q, ggml_tensor* sinks);

  // A recurrent layer's parts, for all rows in any case: its state goes on,
  // whoever reads the result. Shapes: models/recurrent_nodes.h.
  ggml_tensor* ShortConv(uint32_t layer, const ShortConvSources& sources);
  ggml_tensor* Scan(uint32_t layer, const ScanSources& sources);
  ggml_tensor* DeltaRule(uint32_t layer, const DeltaRuleSources& sources);

 private:
  ggml_tensor* NewInput(uint32_t size);
  RecurrentNode* NewRecurrent(size_t state_offset);
  // `node`, which is computed even if nothing reads it.
  ggml_tensor* Always(ggml_tensor* node);

  ggml_context* const context_;
  ggml_cgraph* const graph_;
  StepState* const state_;
  GraphNodes* const nodes_;
  const uint32_t num_rows_;
  const uint32_t num_wanted_;
  GraphInputs inputs_;
  ggml_tensor* appended_ = nullptr;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_GRAPH_BUILDER_H_
