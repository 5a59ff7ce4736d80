#include "models/decoder.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace everwarm::models {

DecoderLayer DeclareLayerAround(TensorScope& scope, const Hyperparameters& h) {
  DecoderLayer layer;
  layer.attn_norm = scope.Vector("attn_norm", h.embedding_dim);
  layer.ffn_norm = scope.Vector("ffn_norm", h.embedding_dim);
  if (h.num_experts > 0) {
    layer.experts = DeclareExperts(scope, h);
  } else {
    layer.feed_forward = DeclareFeedForward(scope, h);
  }
  return layer;
}

DecoderLayer DeclareUsualLayer(TensorScope& scope, const Hyperparameters& h,
                               const AttentionParts& parts) {
  DecoderLayer layer = DeclareLayerAround(scope, h);
  layer.attention = DeclareAttention(scope, h, parts);
  return layer;
}

absl::StatusOr<DecoderWeights> DeclareDecoder(Weights& weights,
                                              const Hyperparameters& h,
                                              const DeclareLayer& declare_layer,
                                              const std::string& output_norm) {
  const int64_t width = h.embedding_dim;
  DecoderWeights decoder;
  EW_ASSIGN_OR_RETURN(decoder.embedding,
                      weights.Table("token_embd.weight", width, h.vocab_size));
  TensorScope outside(weights, "");
  decoder.output_norm = outside.Vector(output_norm, width);
  decoder.output =
      outside.Linear(outside.Has("output.weight") ? "output" : "token_embd",
                     width, h.vocab_size);
  EW_RETURN_IF_ERROR(outside.status());
  for (uint32_t i = 0; i < h.num_layers; ++i) {
    TensorScope scope(weights, absl::StrCat("blk.", i, "."));
    decoder.layers.push_back(declare_layer(scope, i));
    EW_RETURN_IF_ERROR(scope.status());
  }
  for (uint32_t i = 0; i < h.num_predictors; ++i) {
    weights.Ignore(absl::StrCat("blk.", h.num_layers + i, "."));
  }
  return decoder;
}

ggml_tensor* Decoder::Mix(GraphBuilder& graph, uint32_t layer, ggml_tensor* x,
                          bool only_wanted) const {
  const DecoderLayer& weights = weights_.layers[layer];
  ggml_tensor* normed = graph.Norm(x, weights.attn_norm, h_.rms_epsilon);
  ggml_tensor* attended =
      AddAttention(graph, h_, weights.attention, layer, normed, only_wanted);
  if (attended == nullptr || weights.attn_post_norm == nullptr) {
    return attended;
  }
  return graph.Norm(attended, weights.attn_post_norm, h_.rms_epsilon);
}

ggml_tensor* Decoder::Feed(GraphBuilder& graph, uint32_t layer,
                           ggml_tensor* x) const {
  const DecoderLayer& weights = weights_.layers[layer];
  ggml_tensor* normed = graph.Norm(x, weights.ffn_norm, h_.rms_epsilon);
  ggml_tensor* fed = weights.experts.router.matrix == nullptr
                         ? AddFeedForward(graph, weights.feed_forward, normed)
                         : AddExperts(graph, h_, weights.experts, normed);
  if (weights.shared_expert.up.matrix != nullptr) {
    fed = ggml_add(graph.context(), fed,
                   AddFeedForward(graph, weights.shared_expert, normed));
  }
  return weights.ffn_post_norm == nullptr
             ? fed
             : graph.Norm(fed, weights.ffn_post_norm, h_.rms_epsilon);
}

ggml_tensor* Decoder::Head(GraphBuilder& graph, ggml_tensor* x) const {
  ggml_context* context = graph.context();
  ggml_tensor* logits = graph.Linear(
      weights_.output, graph.Norm(x, weights_.output_norm, h_.rms_epsilon));
  if (h_.logit_scale != 1.0f) {
    logits = ggml_scale(context, logits, h_.logit_scale);
  }
  if (h_.final_logit_softcap > 0.0f) {
    logits = ggml_scale(context, logits, 1.0f / h_.final_logit_softcap);
    logits = ggml_tanh(context, logits);
    logits = ggml_scale(context, logits, h_.final_logit_softcap);
  }
  return logits;
}

ggml_tensor* Decoder::AddTo(GraphBuilder& graph, ggml_tensor* x,
                            ggml_tensor* part) const {
  if (h_.residual_scale != 1.0f) {
    part = ggml_scale(graph.context(), part, h_.residual_scale);
  }
  return ggml_add(graph.context(), x, part);
}

ggml_tensor* Decoder::Build(GraphBuilder& graph) const {
  ggml_context* context = graph.context();
  ggml_tensor* x = graph.Embed(weights_.embedding);
  if (h_.embedding_scale != 1.0f) {
    x = ggml_scale(context, x, h_.embedding_scale);
  }
  for (uint32_t i = 0; i < h_.num_layers; ++i) {
    const bool last = i + 1 == h_.num_layers;
    ggml_tensor* mixed = Mix(graph, i, x, last);
    if (mixed == nullptr) {
      return nullptr;
    }
    x = AddTo(graph, last ? graph.Wanted(x) : x, mixed);
    x = AddTo(graph, x, Feed(graph, i, x));
  }
  return Head(graph, x);
}

absl::StatusOr<std::unique_ptr<Architecture>> MakeDecoder(
    Weights& weights, Hyperparameters hyperparameters,
    const DeclareLayer& declare_layer) {
  EW_ASSIGN_OR_RETURN(DecoderWeights declared,
                      DeclareDecoder(weights, hyperparameters, declare_layer));
  return std::make_unique<Decoder>(std::move(hyperparameters),
                                   std::move(declared));
}

}  // namespace everwarm::models
