// Attention as a part of a layer: projections to heads, their norms and
// rotation, attention over the blocks, and the projection back.
#ifndef EVERWARM_MODELS_ATTENTION_LAYER_H_
#define EVERWARM_MODELS_ATTENTION_LAYER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ggml.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/tensor_scope.h"
#include "models/weights.h"

namespace everwarm::models {

// The tensors of one layer's attention; null where it has none.
struct AttentionWeights {
  LinearWeights q;
  LinearWeights k;
  LinearWeights v;
  // In place of the three: the rows of q, then of k, then of v.
  LinearWeights qkv;
  LinearWeights o;
  // Of each head, before it is rotated.
  ggml_tensor* q_norm = nullptr;
  ggml_tensor* k_norm = nullptr;
  // The columns of q have a gate behind each head: its sigmoid scales what the
  // head gives.
  bool gated = false;
  // A logit for each head that takes its share of the softmax and gives
  // nothing.
  ggml_tensor* sinks = nullptr;
  // Nothing: heads are not rotated.
  std::optional<RopeParameters> rope;
  // What the rope's frequencies are divided by.
  ggml_tensor* rope_factors = nullptr;
};

// What an architecture's attention has besides q, k, v and o.
struct AttentionParts {
  bool fused_qkv = false;
  bool head_norms = false;
  bool sinks = false;
  bool gated = false;
};

// The names that all architectures use; rotated like `hyperparameters.rope`.
AttentionWeights DeclareAttention(TensorScope& scope,
                                  const Hyperparameters& hyperparameters,
                                  const AttentionParts& parts);

// The factors per frequency of a file that has some ("rope_freqs"), or two sets
// of them ("rope_factors_short" and "_long"): the long ones for contexts that
// are longer than the one of training before it was extended. Null: none.
// `context` is LoadOptions::context. Which set was chosen is in
// `hyperparameters.variant` then.
absl::StatusOr<ggml_tensor*> DeclareRopeFactors(
    Weights& weights, uint32_t context, Hyperparameters& hyperparameters);

// What layer `layer` attends to, for all rows of x or, with `only_wanted`, for
// those that want logits; null when these are none. Keys and values of all rows
// are written in any case.
// Shapes: x and result [rows or wanted, embedding_dim].
ggml_tensor* AddAttention(GraphBuilder& graph,
                          const Hyperparameters& hyperparameters,
                          const AttentionWeights& weights, uint32_t layer,
                          ggml_tensor* x, bool only_wanted);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_ATTENTION_LAYER_H_
