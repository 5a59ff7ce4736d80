#include "models/feed_forward.h"

#include <cmath>
#include <limits>

namespace everwarm::models {
namespace {

constexpr float kClampedSiluSlope = 1.702f;
constexpr float kClampedSiluLimit = 7.0f;
// Sums of chosen probabilities are not divided by less: the smallest normal
// half, as the models' own code has it.
constexpr float kMinWeightSum = 6.103515625e-5f;

ggml_tensor* Activate(GraphBuilder& graph, Activation activation,
                      ggml_tensor* gate, ggml_tensor* up) {
  ggml_context* context = graph.context();
  switch (activation) {
    case Activation::kSilu:
      return ggml_swiglu_split(context, gate, up);
    case Activation::kGelu:
      return ggml_geglu_split(context, gate, up);
    case Activation::kClampedSilu:
      return ggml_swiglu_oai(context, gate, up, kClampedSiluSlope,
                             kClampedSiluLimit);
  }
  return nullptr;
}

// Which experts each row takes, and with which weights.
struct Choice {
  ggml_tensor* experts = nullptr;  // i32 [rows, used]
  ggml_tensor* weights = nullptr;  // [rows, used]
};

// `order` [rows, experts] with what is not in a chosen group at -infinity.
ggml_tensor* InBestGroups(GraphBuilder& graph, const ExpertWeights& weights,
                          ggml_tensor* order) {
  constexpr int kBest = 2;
  ggml_context* context = graph.context();
  const int64_t rows = order->ne[1];
  const int64_t experts = order->ne[0];
  const int64_t groups = weights.groups;
  ggml_tensor* grouped =
      ggml_reshape_3d(context, order, experts / groups, groups, rows);
  ggml_tensor* best = ggml_get_rows(
      context,
      ggml_reshape_4d(context, grouped, 1, experts / groups, groups, rows),
      ggml_argsort_top_k(context, grouped, kBest));
  best = ggml_sum_rows(context,
                       ggml_reshape_3d(context, best, kBest, groups, rows));
  ggml_tensor* chosen =
      ggml_argsort_top_k(context, ggml_reshape_2d(context, best, groups, rows),
                         static_cast<int>(weights.groups_used));
  ggml_tensor* kept =
      ggml_set_rows(context, ggml_fill(context, grouped, -INFINITY),
                    ggml_get_rows(context, grouped, chosen), chosen);
  return ggml_reshape_2d(context, kept, experts, rows);
}

Choice Choose(GraphBuilder& graph, const Hyperparameters& h,
              const ExpertWeights& weights, ggml_tensor* x) {
  ggml_context* context = graph.context();
  const int64_t rows = x->ne[1];
  const int64_t used = h.experts_used;
  // Not a number would be no order to sort by.
  const auto finite = [&](ggml_tensor* scores) {
    return ggml_clamp(context, scores, std::numeric_limits<float>::lowest(),
                      std::numeric_limits<float>::max());
  };
  ggml_tensor* scores = finite(graph.RowExactLinear(weights.router, x));
  const bool all = weights.routing != Routing::kChooseThenSoftmax;
  if (weights.routing == Routing::kSoftmaxThenChoose) {
    scores = ggml_soft_max(context, scores);
  } else if (weights.routing == Routing::kSigmoidThenChoose) {
    scores = ggml_sigmoid(context, scores);
  }
  ggml_tensor* order =
      weights.choice_bias == nullptr
          ? scores
          : finite(ggml_add(context, scores, weights.choice_bias));
  if (weights.groups > 1) {
    order = InBestGroups(graph, weights, order);
  }
  Choice choice;
  choice.experts = ggml_argsort_top_k(context, order, static_cast<int>(used));
  ggml_tensor* chosen = ggml_get_rows(
      context, ggml_reshape_3d(context, scores, 1, h.num_experts, rows),
      choice.experts);
  chosen = ggml_reshape_2d(context, chosen, used, rows);
  if (!all) {
    chosen = ggml_soft_max(context, chosen);
  } else if (weights.to_one) {
    ggml_tensor* sum = ggml_clamp(context, ggml_sum_rows(context, chosen),
                                  kMinWeightSum, INFINITY);
    chosen = ggml_div(context, chosen, sum);
  }
  if (h.expert_weights_scale != 1.0f) {
    chosen = ggml_scale(context, chosen, h.expert_weights_scale);
  }
  choice.weights = chosen;
  return choice;
}

}  // namespace

FeedForwardWeights DeclareFeedForward(TensorScope& scope,
                                      const Hyperparameters& h) {
  const int64_t width = h.embedding_dim;
  FeedForwardWeights weights;
  weights.gate = scope.Linear("ffn_gate", width, h.ff_dim);
  weights.up = scope.Linear("ffn_up", width, h.ff_dim);
  weights.down = scope.Linear("ffn_down", h.ff_dim, width);
  return weights;
}

FeedForwardWeights DeclareSharedExpert(TensorScope& scope,
                                       const Hyperparameters& h, uint32_t dim) {
  const int64_t width = h.embedding_dim;
  FeedForwardWeights weights;
  weights.gate = scope.Linear("ffn_gate_shexp", width, dim);
  weights.up = scope.Linear("ffn_up_shexp", width, dim);
  weights.down = scope.Linear("ffn_down_shexp", dim, width);
  return weights;
}

FeedForwardWeights DeclareFusedFeedForward(TensorScope& scope,
                                           const Hyperparameters& h) {
  const int64_t width = h.embedding_dim;
  FeedForwardWeights weights;
  weights.up = scope.Linear("ffn_up", width, 2 * int64_t{h.ff_dim});
  weights.down = scope.Linear("ffn_down", h.ff_dim, width);
  return weights;
}

ggml_tensor* AddFeedForward(GraphBuilder& graph,
                            const FeedForwardWeights& weights, ggml_tensor* x) {
  if (weights.gate.matrix == nullptr) {
    ggml_tensor* both = graph.Linear(weights.up, x);
    return graph.Linear(weights.down, ggml_swiglu(graph.context(), both));
  }
  ggml_tensor* gate = graph.Linear(weights.gate, x);
  ggml_tensor* up = graph.Linear(weights.up, x);
  return graph.Linear(weights.down,
                      Activate(graph, weights.activation, gate, up));
}

ExpertWeights DeclareExperts(TensorScope& scope, const Hyperparameters& h) {
  const int64_t width = h.embedding_dim;
  ExpertWeights weights;
  weights.router = scope.Experts("ffn_gate_inp", width, h.num_experts, 1);
  weights.gate =
      scope.Experts("ffn_gate_exps", width, h.expert_ff_dim, h.num_experts);
  weights.up =
      scope.Experts("ffn_up_exps", width, h.expert_ff_dim, h.num_experts);
  weights.down =
      scope.Experts("ffn_down_exps", h.expert_ff_dim, width, h.num_experts);
  return weights;
}

ggml_tensor* AddExperts(GraphBuilder& graph, const Hyperparameters& h,
                        const ExpertWeights& weights, ggml_tensor* x) {
  ggml_context* context = graph.context();
  const int64_t rows = x->ne[1];
  const Choice choice = Choose(graph, h, weights, x);
  ggml_tensor* input = ggml_reshape_3d(context, x, x->ne[0], 1, rows);
  ggml_tensor* gate = graph.ExpertLinear(weights.gate, input, choice.experts);
  ggml_tensor* up = graph.ExpertLinear(weights.up, input, choice.experts);
  // [rows, used, width]
  ggml_tensor* given = graph.ExpertLinear(
      weights.down, Activate(graph, weights.activation, gate, up),
      choice.experts);
  given = ggml_mul(
      context, given,
      ggml_reshape_3d(context, choice.weights, 1, h.experts_used, rows));
  // Added in order of their weights.
  const auto of = [&](uint32_t n) {
    return ggml_view_2d(context, given, given->ne[0], rows, given->nb[2],
                        n * given->nb[1]);
  };
  if (h.experts_used == 1) {
    return ggml_cont(context, of(0));
  }
  ggml_tensor* sum = of(0);
  for (uint32_t n = 1; n < h.experts_used; ++n) {
    sum = ggml_add(context, sum, of(n));
  }
  return sum;
}

}  // namespace everwarm::models
