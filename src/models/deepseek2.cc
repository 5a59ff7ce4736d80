// DeepSeek V2 and V3, and models of their form: attention over a compressed
// latent (MLA), and experts beside one that all tokens take.
//
// A token's keys and values are one latent and one rotated key for all heads.
// The matrices that would make keys and values of it are applied to queries and
// results instead (the "absorbed" form), so that attention is over one KV head
// whose values are the beginning of its keys.
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/decoder.h"
#include "models/key_reader.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kMaxRank = 1 << 14;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxSharedExperts = 64;
// Values of expert_gating_func.
constexpr uint32_t kGateUnsaid = 0;
constexpr uint32_t kGateSoftmax = 1;
constexpr uint32_t kGateSigmoid = 2;

struct MlaSizes {
  uint32_t q_rank = 0;   // 0: queries are not compressed
  uint32_t kv_rank = 0;  // of the latent
  uint32_t rope_dim = 0;
  uint32_t nope_dim = 0;  // of a head's key, besides what is rotated
  uint32_t v_dim = 0;     // of a head's value
  uint32_t q_dim() const { return nope_dim + rope_dim; }
};

struct MlaWeights {
  LinearWeights q;  // to all heads' queries, of x or of the compressed
  LinearWeights q_down;
  ggml_tensor* q_norm = nullptr;
  LinearWeights kv_down;  // to the latent and the rotated key
  ggml_tensor* kv_norm = nullptr;
  LinearWeights k_up;  // [heads, kv_rank, nope_dim]: from queries to latents
  LinearWeights v_up;  // [heads, v_dim, kv_rank]
  LinearWeights o;
};

class DeepSeek2 final : public Decoder {
 public:
  DeepSeek2(Hyperparameters hyperparameters, DecoderWeights weights,
            const MlaSizes& sizes, std::vector<MlaWeights> attention)
      : Decoder(std::move(hyperparameters), std::move(weights)),
        sizes_(sizes),
        attention_(std::move(attention)) {}

 protected:
  ggml_tensor* Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                   bool only_wanted) const override;

 private:
  // [rows, kv_rank + rope_dim]
  ggml_tensor* Keys(GraphBuilder& graph, const MlaWeights& weights,
                    ggml_tensor* x) const;
  // [rows, heads, kv_rank + rope_dim]
  ggml_tensor* Queries(GraphBuilder& graph, const MlaWeights& weights,
                       ggml_tensor* x, bool only_wanted) const;

  const MlaSizes sizes_;
  const std::vector<MlaWeights> attention_;
};

ggml_tensor* DeepSeek2::Keys(GraphBuilder& graph, const MlaWeights& weights,
                             ggml_tensor* x) const {
  const Hyperparameters& h = hyperparameters();
  ggml_tensor* down = graph.Linear(weights.kv_down, x);
  ggml_tensor* latent =
      graph.Norm(graph.HeadColumns(down, 0, {1, sizes_.kv_rank}),
                 weights.kv_norm, h.rms_epsilon);
  ggml_tensor* rotated =
      graph.Rope(graph.HeadColumns(down, sizes_.kv_rank, {1, sizes_.rope_dim}),
                 h.rope, nullptr, false);
  return ggml_concat(graph.context(), latent, rotated, 0);
}

ggml_tensor* DeepSeek2::Queries(GraphBuilder& graph, const MlaWeights& weights,
                                ggml_tensor* x, bool only_wanted) const {
  const Hyperparameters& h = hyperparameters();
  if (weights.q_down.matrix != nullptr) {
    x = graph.Norm(graph.Linear(weights.q_down, x), weights.q_norm,
                   h.rms_epsilon);
  }
  ggml_tensor* q = graph.SplitHeads(graph.Linear(weights.q, x),
                                    {h.num_heads, sizes_.q_dim()});
  const auto part = [&](uint32_t first, uint32_t dim) {
    return ggml_view_3d(graph.context(), q, dim, h.num_heads, q->ne[2],
                        q->nb[1], q->nb[2], first * sizeof(float));
  };
  ggml_tensor* absorbed = graph.HeadLinear(
      weights.k_up, ggml_cont(graph.context(), part(0, sizes_.nope_dim)));
  ggml_tensor* rotated = graph.Rope(part(sizes_.nope_dim, sizes_.rope_dim),
                                    h.rope, nullptr, only_wanted);
  return ggml_concat(graph.context(), absorbed, rotated, 0);
}

ggml_tensor* DeepSeek2::Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                            bool only_wanted) const {
  const Hyperparameters& h = hyperparameters();
  const MlaWeights& weights = attention_[index];
  ggml_tensor* normed = graph.Norm(x, layer(index).attn_norm, h.rms_epsilon);
  graph.Append(index, Keys(graph, weights, normed), nullptr, only_wanted);
  if (only_wanted) {
    if (graph.wanted() == 0) {
      return nullptr;
    }
    normed = graph.Wanted(normed);
  }
  ggml_tensor* attended =
      graph.Attend(Queries(graph, weights, normed, only_wanted), nullptr);
  attended = graph.HeadLinear(
      weights.v_up, graph.SplitHeads(attended, {h.num_heads, sizes_.kv_rank}));
  return graph.Linear(
      weights.o,
      ggml_reshape_2d(graph.context(), attended,
                      int64_t{h.num_heads} * sizes_.v_dim, attended->ne[2]));
}

// With a multiplier in the file, YaRN leaves rotated numbers at their size and
// scales all scores instead.
void SetScales(KeyReader& reader, const MlaSizes& sizes, Hyperparameters& h) {
  constexpr float kPerLog = 0.1f;
  const float stretch = std::log(1.0f / h.rope.freq_scale);
  // What ggml multiplies rotated numbers by.
  const float ggml_factor = 1.0f + kPerLog * stretch;
  const float multiplier =
      reader.Float("rope.scaling.yarn_log_multiplier", 0.0f) / kPerLog;
  if (h.rope.ext_factor != 0.0f && multiplier != 0.0f) {
    h.rope.attn_factor =
        reader.Float("rope.scaling.attn_factor", 1.0f) / ggml_factor;
  }
  const float scale = h.rope.attn_factor * ggml_factor *
                      (1.0f + kPerLog * multiplier * stretch);
  h.attention_scale =
      scale * scale / std::sqrt(static_cast<float>(sizes.q_dim()));
}

absl::StatusOr<MlaSizes> ReadMlaSizes(const GgufFile& file, KeyReader& reader,
                                      const Hyperparameters& h) {
  if (!file.Has(reader.Key("attention.key_length_mla"))) {
    return absl::UnimplementedError(absl::StrCat(
        file.path(), ": key '", reader.Key("attention.key_length_mla"),
        "' is missing, as in files with keys and values for each head "
        "(attn_kv_b); these do not run here, newly converted ones do"));
  }
  if (reader.Float("attention.temperature_scale", 0.0f) != 0.0f) {
    reader.Fail(absl::UnimplementedError(absl::StrCat(
        file.path(), ": key '", reader.Key("attention.temperature_scale"),
        "': queries scaled by position do not run here")));
  }
  MlaSizes sizes;
  sizes.q_rank = reader.Uint("attention.q_lora_rank", 0, kMaxRank, 0);
  sizes.kv_rank = reader.Uint("attention.kv_lora_rank", 1, kMaxHeadDim);
  sizes.rope_dim = h.rope.dims;
  const uint32_t q_dim =
      reader.Uint("attention.key_length_mla", sizes.rope_dim + 1, kMaxHeadDim);
  sizes.nope_dim = q_dim - sizes.rope_dim;
  sizes.v_dim = reader.Uint("attention.value_length_mla", 1, kMaxHeadDim);
  EW_RETURN_IF_ERROR(reader.status());
  if (h.num_kv_heads != 1 || h.v_dim != sizes.kv_rank ||
      h.k_dim != sizes.kv_rank + sizes.rope_dim) {
    return file.Invalid(absl::StrCat(
        h.num_kv_heads, " KV heads of ", h.k_dim, " and ", h.v_dim,
        " elements, expected 1 of ", sizes.kv_rank + sizes.rope_dim, " and ",
        sizes.kv_rank, " (the latent's rank, and that with the rope)"));
  }
  return sizes;
}

struct ExpertKeys {
  uint32_t dense_layers = 0;  // the first ones have no experts
  uint32_t shared_dim = 0;
  Routing routing = Routing::kSoftmaxThenChoose;
  bool to_one = false;  // the chosen experts' weights
  // As in ExpertWeights.
  uint32_t groups = 1;
  uint32_t groups_used = 1;
};

ExpertKeys ReadExpertKeys(const GgufFile& file, KeyReader& reader,
                          Hyperparameters& h) {
  ExpertKeys keys;
  keys.dense_layers =
      reader.Uint("leading_dense_block_count", 0, h.num_layers, 0);
  if (h.num_experts == 0) {
    keys.dense_layers = h.num_layers;
    return keys;
  }
  keys.shared_dim = h.expert_ff_dim *
                    reader.Uint("expert_shared_count", 0, kMaxSharedExperts, 0);
  keys.to_one = reader.Uint("expert_weights_norm", 0, 1, 0) == 1;
  const uint32_t gate =
      reader.Uint("expert_gating_func", 0, UINT32_MAX, kGateUnsaid);
  keys.routing = gate == kGateSigmoid ? Routing::kSigmoidThenChoose
                                      : Routing::kSoftmaxThenChoose;
  if (gate > kGateSigmoid) {
    reader.Fail(absl::UnimplementedError(
        absl::StrCat(file.path(), ": key '", reader.Key("expert_gating_func"),
                     "' is ", gate, "; ", kGateSoftmax, " (softmax) and ",
                     kGateSigmoid, " (sigmoid) run here")));
  }
  keys.groups = reader.Uint("expert_group_count", 0, h.num_experts, 0);
  if (keys.groups > 1) {
    keys.groups_used =
        reader.Uint("expert_group_used_count", 1, keys.groups - 1);
    const uint32_t members = h.num_experts / keys.groups;
    if (h.num_experts % keys.groups != 0 || members < 2 ||
        members * keys.groups_used < h.experts_used) {
      reader.Fail(file.Invalid(absl::StrCat(
          h.num_experts, " experts in ", keys.groups, " groups, of which ",
          keys.groups_used, " give ", h.experts_used,
          " experts; equal groups of at least two, with enough in them, were "
          "expected")));
    }
  }
  if (h.expert_weights_scale == 0.0f) {
    h.expert_weights_scale = 1.0f;
  }
  return keys;
}

MlaWeights DeclareMla(TensorScope& scope, const Hyperparameters& h,
                      const MlaSizes& sizes) {
  const int64_t width = h.embedding_dim;
  const int64_t q_width = int64_t{h.num_heads} * sizes.q_dim();
  MlaWeights weights;
  if (scope.Has("attn_q_a.weight") || !scope.Has("attn_q.weight")) {
    weights.q_down = scope.Linear("attn_q_a", width, sizes.q_rank);
    weights.q_norm = scope.Vector("attn_q_a_norm", sizes.q_rank);
    weights.q = scope.Linear("attn_q_b", sizes.q_rank, q_width);
  } else {
    weights.q = scope.Linear("attn_q", width, q_width);
  }
  weights.kv_down =
      scope.Linear("attn_kv_a_mqa", width, sizes.kv_rank + sizes.rope_dim);
  weights.kv_norm = scope.Vector("attn_kv_a_norm", sizes.kv_rank);
  weights.k_up =
      scope.Experts("attn_k_b", sizes.nope_dim, sizes.kv_rank, h.num_heads);
  weights.v_up =
      scope.Experts("attn_v_b", sizes.kv_rank, sizes.v_dim, h.num_heads);
  weights.o =
      scope.Linear("attn_output", int64_t{h.num_heads} * sizes.v_dim, width);
  return weights;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeDeepSeek2(
    Weights& weights, const LoadOptions& /*options*/) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NORMAL,
                                 .experts = KeyRules::Experts::kSome}));
  h.latent = true;
  KeyReader reader(file, h.architecture);
  EW_ASSIGN_OR_RETURN(const MlaSizes sizes, ReadMlaSizes(file, reader, h));
  SetScales(reader, sizes, h);
  const ExpertKeys keys = ReadExpertKeys(file, reader, h);
  EW_RETURN_IF_ERROR(reader.status());

  std::vector<MlaWeights> attention(h.num_layers);
  const auto declare = [&](TensorScope& scope, uint32_t index) {
    DecoderLayer layer;
    layer.attn_norm = scope.Vector("attn_norm", h.embedding_dim);
    attention[index] = DeclareMla(scope, h, sizes);
    layer.ffn_norm = scope.Vector("ffn_norm", h.embedding_dim);
    if (index < keys.dense_layers) {
      layer.feed_forward = DeclareFeedForward(scope, h);
      return layer;
    }
    layer.experts = DeclareExperts(scope, h);
    layer.experts.routing = keys.routing;
    layer.experts.to_one = keys.to_one;
    layer.experts.groups = keys.groups;
    layer.experts.groups_used = keys.groups_used;
    if (scope.Has("exp_probs_b.bias")) {
      layer.experts.choice_bias =
          scope.Numbers("exp_probs_b.bias", h.num_experts);
    }
    if (keys.shared_dim > 0) {
      layer.shared_expert = DeclareSharedExpert(scope, h, keys.shared_dim);
    }
    return layer;
  };
  EW_ASSIGN_OR_RETURN(DecoderWeights decoder,
                      DeclareDecoder(weights, h, declare));
  return std::make_unique<DeepSeek2>(std::move(h), std::move(decoder), sizes,
                                     std::move(attention));
}

}  // namespace everwarm::models
