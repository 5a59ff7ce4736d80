// Feed-forward networks as a part of a layer: one for all tokens, or experts of
// which each token takes a few.
#ifndef EVERWARM_MODELS_FEED_FORWARD_H_
#define EVERWARM_MODELS_FEED_FORWARD_H_

#include "ggml.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/tensor_scope.h"

namespace everwarm::models {

// What becomes of gate and up.
enum class Activation {
  kSilu,  // silu(gate) * up
  kGelu,  // gelu(gate) * up
  // gate * sigmoid(1.702 gate) * (up + 1), gate at most 7 and up from -7 to 7:
  // the form of gpt-oss (github.com/openai/gpt-oss).
  kClampedSilu,
};

struct FeedForwardWeights {
  // No matrix: `up` has the rows of gate before its own.
  LinearWeights gate;
  LinearWeights up;
  LinearWeights down;
  Activation activation = Activation::kSilu;
};

// The names that all architectures use.
FeedForwardWeights DeclareFeedForward(TensorScope& scope,
                                      const Hyperparameters& hyperparameters);
// The one that all tokens take beside the experts, `dim` wide.
FeedForwardWeights DeclareSharedExpert(TensorScope& scope,
                                       const Hyperparameters& hyperparameters,
                                       uint32_t dim);
// The same as the first with gate and up in one matrix.
FeedForwardWeights DeclareFusedFeedForward(
    TensorScope& scope, const Hyperparameters& hyperparameters);

// Shapes: x and result [rows, embedding_dim].
ggml_tensor* AddFeedForward(GraphBuilder& graph,
                            const FeedForwardWeights& weights, ggml_tensor* x);

// What a router's logits become.
enum class Routing {
  // Probabilities over all experts.
  kSoftmaxThenChoose,
  // The sigmoid of each.
  kSigmoidThenChoose,
  // The chosen are those of the largest logits, weighted by the softmax over
  // these alone.
  kChooseThenSoftmax,
};

struct ExpertWeights {
  // No matrix: there are no experts.
  LinearWeights router;
  LinearWeights gate;
  LinearWeights up;
  LinearWeights down;
  Activation activation = Activation::kSilu;
  Routing routing = Routing::kSoftmaxThenChoose;
  // The weights of the chosen are scaled to a sum of 1.
  bool to_one = true;
  // Experts are chosen out of `groups_used` of so many groups of neighbours:
  // those whose two best experts sum to most. 1: out of all.
  uint32_t groups = 1;
  uint32_t groups_used = 1;
  // Added to what experts are chosen by, but not to their weights: [experts],
  // or null.
  ggml_tensor* choice_bias = nullptr;
};

// The names that all architectures use.
ExpertWeights DeclareExperts(TensorScope& scope,
                             const Hyperparameters& hyperparameters);

// A row's result depends on that row alone, whatever the weights' type.
// Shapes: x and result [rows, embedding_dim].
ggml_tensor* AddExperts(GraphBuilder& graph,
                        const Hyperparameters& hyperparameters,
                        const ExpertWeights& weights, ggml_tensor* x);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_FEED_FORWARD_H_
