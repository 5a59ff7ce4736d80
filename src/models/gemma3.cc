// Gemma 3 (text): layers with a sliding window, and every few one without.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/architecture.h"

namespace everwarm::models {
namespace {

// Unless the file says otherwise, every sixth layer sees all positions.
constexpr uint32_t kWindowPeriod = 6;

// The 27B model, known by its layers, scales scores by the width of a head as
// it would be without attention.key_length.
constexpr uint32_t kLayersOf27B = 62;

struct Layer {
  ggml_tensor* attn_norm;
  ggml_tensor* q;
  ggml_tensor* k;
  ggml_tensor* v;
  ggml_tensor* o;
  ggml_tensor* q_norm;
  ggml_tensor* k_norm;
  ggml_tensor* attn_post_norm;
  ggml_tensor* ffn_norm;
  ggml_tensor* gate;
  ggml_tensor* up;
  ggml_tensor* down;
  ggml_tensor* ffn_post_norm;
};

class Gemma3 final : public Architecture {
 public:
  static absl::StatusOr<std::unique_ptr<Architecture>> Make(Weights& weights) {
    auto gemma = std::make_unique<Gemma3>();
    EW_RETURN_IF_ERROR(gemma->Declare(weights));
    return gemma;
  }

  const Hyperparameters& hyperparameters() const override { return h_; }
  ggml_tensor* Build(GraphBuilder& graph) const override;

 private:
  absl::Status Declare(Weights& weights);
  absl::Status DeclareLayer(Weights& weights, const std::string& prefix,
                            Layer& layer) const;
  // Projects to heads, norms each and rotates.
  ggml_tensor* NormedHeads(GraphBuilder& graph, uint32_t layer,
                           ggml_tensor* projected, uint32_t num_heads,
                           ggml_tensor* norm, bool only_wanted) const;
  ggml_tensor* Head(GraphBuilder& graph, ggml_tensor* x) const;

  Hyperparameters h_;
  ggml_tensor* embedding_ = nullptr;
  ggml_tensor* output_norm_ = nullptr;
  ggml_tensor* output_ = nullptr;
  std::vector<Layer> layers_;
};

absl::Status Gemma3::Declare(Weights& weights) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(h_, ReadHyperparameters(file, GGML_ROPE_TYPE_NEOX));
  EW_RETURN_IF_ERROR(ReadWindows(file, kWindowPeriod, h_));
  EW_ASSIGN_OR_RETURN(
      h_.final_logit_softcap,
      file.FloatOr(h_.architecture + ".final_logit_softcapping", 0.0f));
  if (h_.num_layers == kLayersOf27B) {
    h_.attention_scale =
        1.0f / std::sqrt(static_cast<float>(h_.embedding_dim / h_.num_heads));
  }
  const int64_t width = h_.embedding_dim;
  EW_ASSIGN_OR_RETURN(embedding_,
                      weights.Table("token_embd.weight", width, h_.vocab_size));
  EW_ASSIGN_OR_RETURN(output_norm_,
                      weights.Vector("output_norm.weight", width));
  const std::string head =
      weights.Has("output.weight") ? "output.weight" : "token_embd.weight";
  EW_ASSIGN_OR_RETURN(output_, weights.Matrix(head, width, h_.vocab_size));
  layers_.resize(h_.num_layers);
  for (uint32_t i = 0; i < h_.num_layers; ++i) {
    EW_RETURN_IF_ERROR(
        DeclareLayer(weights, absl::StrCat("blk.", i, "."), layers_[i]));
  }
  return absl::OkStatus();
}

absl::Status Gemma3::DeclareLayer(Weights& weights, const std::string& prefix,
                                  Layer& layer) const {
  const int64_t width = h_.embedding_dim;
  const auto norm = [&](const char* name, int64_t size,
                        ggml_tensor*& out) -> absl::Status {
    EW_ASSIGN_OR_RETURN(
        out, weights.Vector(absl::StrCat(prefix, name, ".weight"), size));
    return absl::OkStatus();
  };
  const auto matrix = [&](const char* name, int64_t inputs, int64_t outputs,
                          ggml_tensor*& out) -> absl::Status {
    EW_ASSIGN_OR_RETURN(
        out,
        weights.Matrix(absl::StrCat(prefix, name, ".weight"), inputs, outputs));
    return absl::OkStatus();
  };
  EW_RETURN_IF_ERROR(norm("attn_norm", width, layer.attn_norm));
  EW_RETURN_IF_ERROR(
      matrix("attn_q", width, int64_t{h_.num_heads} * h_.k_dim, layer.q));
  EW_RETURN_IF_ERROR(
      matrix("attn_k", width, int64_t{h_.num_kv_heads} * h_.k_dim, layer.k));
  EW_RETURN_IF_ERROR(
      matrix("attn_v", width, int64_t{h_.num_kv_heads} * h_.v_dim, layer.v));
  EW_RETURN_IF_ERROR(
      matrix("attn_output", int64_t{h_.num_heads} * h_.v_dim, width, layer.o));
  EW_RETURN_IF_ERROR(norm("attn_q_norm", h_.k_dim, layer.q_norm));
  EW_RETURN_IF_ERROR(norm("attn_k_norm", h_.k_dim, layer.k_norm));
  EW_RETURN_IF_ERROR(norm("post_attention_norm", width, layer.attn_post_norm));
  EW_RETURN_IF_ERROR(norm("ffn_norm", width, layer.ffn_norm));
  EW_RETURN_IF_ERROR(matrix("ffn_gate", width, h_.ff_dim, layer.gate));
  EW_RETURN_IF_ERROR(matrix("ffn_up", width, h_.ff_dim, layer.up));
  EW_RETURN_IF_ERROR(matrix("ffn_down", h_.ff_dim, width, layer.down));
  return norm("post_ffw_norm", width, layer.ffn_post_norm);
}

ggml_tensor* Gemma3::NormedHeads(GraphBuilder& graph, uint32_t layer,
                                 ggml_tensor* projected, uint32_t num_heads,
                                 ggml_tensor* norm, bool only_wanted) const {
  ggml_tensor* heads = graph.SplitHeads(projected, {num_heads, h_.k_dim});
  return graph.Rope(graph.Norm(heads, norm, h_.rms_epsilon),
                    h_.windowed[layer] ? h_.window_rope : h_.rope, nullptr,
                    only_wanted);
}

ggml_tensor* Gemma3::Head(GraphBuilder& graph, ggml_tensor* x) const {
  ggml_context* context = graph.context();
  ggml_tensor* logits =
      graph.Linear(output_, graph.Norm(x, output_norm_, h_.rms_epsilon));
  if (h_.final_logit_softcap > 0.0f) {
    logits = ggml_scale(context, logits, 1.0f / h_.final_logit_softcap);
    logits = ggml_tanh(context, logits);
    logits = ggml_scale(context, logits, h_.final_logit_softcap);
  }
  return logits;
}

ggml_tensor* Gemma3::Build(GraphBuilder& graph) const {
  ggml_context* context = graph.context();
  ggml_tensor* x = ggml_scale(context, graph.Embed(embedding_),
                              std::sqrt(static_cast<float>(h_.embedding_dim)));
  for (uint32_t i = 0; i < h_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    const bool last = i + 1 == h_.num_layers;
    ggml_tensor* normed = graph.Norm(x, layer.attn_norm, h_.rms_epsilon);
    ggml_tensor* k = NormedHeads(graph, i, graph.Linear(layer.k, normed),
                                 h_.num_kv_heads, layer.k_norm, false);
    graph.Append(i, k, graph.Linear(layer.v, normed), last);
    if (last) {
      if (graph.wanted() == 0) {
        return nullptr;
      }
      x = graph.Wanted(x);
      normed = graph.Wanted(normed);
    }
    ggml_tensor* q = NormedHeads(graph, i, graph.Linear(layer.q, normed),
                                 h_.num_heads, layer.q_norm, last);
    ggml_tensor* attended = graph.Linear(layer.o, graph.Attend(q));
    x = ggml_add(context, x,
                 graph.Norm(attended, layer.attn_post_norm, h_.rms_epsilon));
    normed = graph.Norm(x, layer.ffn_norm, h_.rms_epsilon);
    ggml_tensor* hidden =
        ggml_geglu_split(context, graph.Linear(layer.gate, normed),
                         graph.Linear(layer.up, normed));
    x = ggml_add(context, x,
                 graph.Norm(graph.Linear(layer.down, hidden),
                            layer.ffn_post_norm, h_.rms_epsilon));
  }
  return Head(graph, x);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeGemma3(Weights& weights) {
  return Gemma3::Make(weights);
}

}  // namespace everwarm::models
