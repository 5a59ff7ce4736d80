// Llama and what shares its architecture (SmolLM2, Mistral, TinyLlama, ...).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/architecture.h"

namespace everwarm::models {
namespace {

struct Layer {
  ggml_tensor* attn_norm;
  ggml_tensor* q;
  ggml_tensor* k;
  ggml_tensor* v;
  ggml_tensor* o;
  ggml_tensor* q_bias;
  ggml_tensor* k_bias;
  ggml_tensor* v_bias;
  ggml_tensor* o_bias;
  ggml_tensor* ffn_norm;
  ggml_tensor* gate;
  ggml_tensor* up;
  ggml_tensor* down;
  ggml_tensor* gate_bias;
  ggml_tensor* up_bias;
  ggml_tensor* down_bias;
};

class Llama final : public Architecture {
 public:
  static absl::StatusOr<std::unique_ptr<Architecture>> Make(Weights& weights) {
    auto llama = std::make_unique<Llama>();
    EW_RETURN_IF_ERROR(llama->Declare(weights));
    return llama;
  }

  const Hyperparameters& hyperparameters() const override { return h_; }
  ggml_tensor* Build(GraphBuilder& graph) const override;

 private:
  absl::Status Declare(Weights& weights);
  absl::Status DeclareLayer(Weights& weights, const std::string& prefix,
                            Layer& layer) const;
  ggml_tensor* FeedForward(GraphBuilder& graph, const Layer& layer,
                           ggml_tensor* x) const;

  Hyperparameters h_;
  ggml_tensor* embedding_ = nullptr;
  ggml_tensor* output_norm_ = nullptr;
  ggml_tensor* output_ = nullptr;
  // Divides the rope frequencies; null when the file has none.
  ggml_tensor* rope_factors_ = nullptr;
  std::vector<Layer> layers_;
};

absl::Status Llama::Declare(Weights& weights) {
  EW_ASSIGN_OR_RETURN(
      h_, ReadHyperparameters(weights.file(), GGML_ROPE_TYPE_NORMAL));
  const int64_t width = h_.embedding_dim;
  EW_ASSIGN_OR_RETURN(embedding_,
                      weights.Table("token_embd.weight", width, h_.vocab_size));
  EW_ASSIGN_OR_RETURN(output_norm_,
                      weights.Vector("output_norm.weight", width));
  const std::string head =
      weights.Has("output.weight") ? "output.weight" : "token_embd.weight";
  EW_ASSIGN_OR_RETURN(output_, weights.Matrix(head, width, h_.vocab_size));
  EW_ASSIGN_OR_RETURN(rope_factors_, weights.OptionalVector("rope_freqs.weight",
                                                            h_.rope.dims / 2));
  layers_.resize(h_.num_layers);
  for (uint32_t i = 0; i < h_.num_layers; ++i) {
    EW_RETURN_IF_ERROR(
        DeclareLayer(weights, absl::StrCat("blk.", i, "."), layers_[i]));
  }
  return absl::OkStatus();
}

absl::Status Llama::DeclareLayer(Weights& weights, const std::string& prefix,
                                 Layer& layer) const {
  const int64_t width = h_.embedding_dim;
  const int64_t q_width = int64_t{h_.num_heads} * h_.k_dim;
  const int64_t k_width = int64_t{h_.num_kv_heads} * h_.k_dim;
  const int64_t v_width = int64_t{h_.num_kv_heads} * h_.v_dim;
  const int64_t o_width = int64_t{h_.num_heads} * h_.v_dim;
  const auto norm = [&](const char* name, ggml_tensor*& out) -> absl::Status {
    EW_ASSIGN_OR_RETURN(
        out, weights.Vector(absl::StrCat(prefix, name, ".weight"), width));
    return absl::OkStatus();
  };
  const auto linear = [&](const char* name, int64_t inputs, int64_t outputs,
                          ggml_tensor*& matrix,
                          ggml_tensor*& bias) -> absl::Status {
    EW_ASSIGN_OR_RETURN(
        matrix,
        weights.Matrix(absl::StrCat(prefix, name, ".weight"), inputs, outputs));
    EW_ASSIGN_OR_RETURN(
        bias,
        weights.OptionalVector(absl::StrCat(prefix, name, ".bias"), outputs));
    return absl::OkStatus();
  };
  EW_RETURN_IF_ERROR(norm("attn_norm", layer.attn_norm));
  EW_RETURN_IF_ERROR(linear("attn_q", width, q_width, layer.q, layer.q_bias));
  EW_RETURN_IF_ERROR(linear("attn_k", width, k_width, layer.k, layer.k_bias));
  EW_RETURN_IF_ERROR(linear("attn_v", width, v_width, layer.v, layer.v_bias));
  EW_RETURN_IF_ERROR(
      linear("attn_output", o_width, width, layer.o, layer.o_bias));
  EW_RETURN_IF_ERROR(norm("ffn_norm", layer.ffn_norm));
  EW_RETURN_IF_ERROR(
      linear("ffn_gate", width, h_.ff_dim, layer.gate, layer.gate_bias));
  EW_RETURN_IF_ERROR(
      linear("ffn_up", width, h_.ff_dim, layer.up, layer.up_bias));
  return linear("ffn_down", h_.ff_dim, width, layer.down, layer.down_bias);
}

ggml_tensor* Llama::FeedForward(GraphBuilder& graph, const Layer& layer,
                                ggml_tensor* x) const {
  ggml_tensor* gate = graph.Linear(layer.gate, x, layer.gate_bias);
  ggml_tensor* up = graph.Linear(layer.up, x, layer.up_bias);
  return graph.Linear(layer.down, ggml_swiglu_split(graph.context(), gate, up),
                      layer.down_bias);
}

ggml_tensor* Llama::Build(GraphBuilder& graph) const {
  const Heads q_heads = {h_.num_heads, h_.k_dim};
  const Heads k_heads = {h_.num_kv_heads, h_.k_dim};
  ggml_tensor* x = graph.Embed(embedding_);
  for (uint32_t i = 0; i < h_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    const bool last = i + 1 == h_.num_layers;
    ggml_tensor* normed = graph.Norm(x, layer.attn_norm, h_.rms_epsilon);
    ggml_tensor* k = graph.Rope(
        graph.SplitHeads(graph.Linear(layer.k, normed, layer.k_bias), k_heads),
        h_.rope, rope_factors_, false);
    graph.Append(i, k, graph.Linear(layer.v, normed, layer.v_bias), last);
    if (last) {
      if (graph.wanted() == 0) {
        return nullptr;
      }
      x = graph.Wanted(x);
      normed = graph.Wanted(normed);
    }
    ggml_tensor* q = graph.Rope(
        graph.SplitHeads(graph.Linear(layer.q, normed, layer.q_bias), q_heads),
        h_.rope, rope_factors_, last);
    x = ggml_add(graph.context(), x,
                 graph.Linear(layer.o, graph.Attend(q), layer.o_bias));
    normed = graph.Norm(x, layer.ffn_norm, h_.rms_epsilon);
    x = ggml_add(graph.context(), x, FeedForward(graph, layer, normed));
  }
  return graph.Linear(output_, graph.Norm(x, output_norm_, h_.rms_epsilon));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeLlama(Weights& weights) {
  return Llama::Make(weights);
}

}  // namespace everwarm::models
