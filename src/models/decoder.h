// The stack of layers that most architectures are: each adds what it mixes over
// positions, then what a feed-forward network makes of each.
#ifndef EVERWARM_MODELS_DECODER_H_
#define EVERWARM_MODELS_DECODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ggml.h"
#include "models/architecture.h"
#include "models/attention_layer.h"
#include "models/feed_forward.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/tensor_scope.h"
#include "models/weights.h"

namespace everwarm::models {

struct DecoderLayer {
  ggml_tensor* attn_norm = nullptr;
  AttentionWeights attention;
  // Of what attention gives; null: none.
  ggml_tensor* attn_post_norm = nullptr;
  ggml_tensor* ffn_norm = nullptr;
  FeedForwardWeights feed_forward;
  // With a router: in place of `feed_forward`.
  ExpertWeights experts;
  // What all tokens take beside the experts; no matrix: nothing.
  FeedForwardWeights shared_expert;
  // Of what the feed-forward network gives; null: none.
  ggml_tensor* ffn_post_norm = nullptr;
};

// A layer by the names that most architectures use: attention with `parts`, and
// experts if the model has some, else one feed-forward network.
DecoderLayer DeclareUsualLayer(TensorScope& scope,
                               const Hyperparameters& hyperparameters,
                               const AttentionParts& parts);

// The same without attention, for layers that mix positions otherwise.
DecoderLayer DeclareLayerAround(TensorScope& scope,
                                const Hyperparameters& hyperparameters);

struct DecoderWeights {
  ggml_tensor* embedding = nullptr;
  ggml_tensor* output_norm = nullptr;
  LinearWeights output;
  std::vector<DecoderLayer> layers;
};

// Declares the tensors of one layer; errors stay in the scope.
using DeclareLayer =
    std::function<DecoderLayer(TensorScope& scope, uint32_t layer)>;

// Declares the embedding, the head (the embedding again where the file has no
// other) and every layer. `output_norm` is the name of the last norm.
absl::StatusOr<DecoderWeights> DeclareDecoder(
    Weights& weights, const Hyperparameters& hyperparameters,
    const DeclareLayer& declare_layer,
    const std::string& output_norm = "output_norm");

// Threads: as Architecture.
class Decoder : public Architecture {
 public:
  Decoder(Hyperparameters hyperparameters, DecoderWeights weights)
      : h_(std::move(hyperparameters)), weights_(std::move(weights)) {}

  const Hyperparameters& hyperparameters() const final { return h_; }
  ggml_tensor* Build(GraphBuilder& graph) const final;

 protected:
  // What layer `layer` adds to its input x, of which `only_wanted` (the last
  // layer) asks for the rows that want logits. Null when these are none.
  virtual ggml_tensor* Mix(GraphBuilder& graph, uint32_t layer, ggml_tensor* x,
                           bool only_wanted) const;
  // The same for the layer's second part; all rows of x.
  virtual ggml_tensor* Feed(GraphBuilder& graph, uint32_t layer,
                            ggml_tensor* x) const;

  const DecoderLayer& layer(uint32_t index) const {
    return weights_.layers[index];
  }

 private:
  // x plus what a part of a layer gives.
  ggml_tensor* AddTo(GraphBuilder& graph, ggml_tensor* x,
                     ggml_tensor* part) const;
  ggml_tensor* Head(GraphBuilder& graph, ggml_tensor* x) const;

  const Hyperparameters h_;
  const DecoderWeights weights_;
};

// Declares and makes one whose layers need nothing that is not above.
absl::StatusOr<std::unique_ptr<Architecture>> MakeDecoder(
    Weights& weights, Hyperparameters hyperparameters,
    const DeclareLayer& declare_layer);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_DECODER_H_
