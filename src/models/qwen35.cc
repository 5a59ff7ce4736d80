// Qwen 3.5: layers of the gated delta rule (Yang et al. 2024), and every few
// one with gated attention.
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/decoder.h"
#include "models/key_reader.h"
#include "models/ssm_sizes.h"

namespace everwarm::models {
namespace {

// Unless the file says otherwise, every fourth layer has attention.
constexpr uint32_t kAttentionPeriod = 4;

struct DeltaNetWeights {
  LinearWeights qkv;               // to the convolution's channels
  LinearWeights gate;              // [inner, width]
  LinearWeights beta;              // [heads, width]
  LinearWeights alpha;             // [heads, width]
  ggml_tensor* taps = nullptr;     // [channels, taps]
  ggml_tensor* dt_bias = nullptr;  // [heads]
  ggml_tensor* a = nullptr;        // [heads]; negative
  ggml_tensor* norm = nullptr;     // [head_dim]
  LinearWeights out;
};

// SsmSizes of this rule: `groups` are the heads of queries and keys, state_dim
// is their width.
class Qwen35 final : public Decoder {
 public:
  // `nets` by layer; those of layers with attention are empty.
  Qwen35(Hyperparameters hyperparameters, DecoderWeights weights,
         const SsmSizes& sizes, std::vector<DeltaNetWeights> nets)
      : Decoder(std::move(hyperparameters), std::move(weights)),
        sizes_(sizes),
        nets_(std::move(nets)) {}

 protected:
  ggml_tensor* Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                   bool only_wanted) const override;

 private:
  // What the rule gives for all rows: [rows, inner].
  ggml_tensor* AddDeltaNet(GraphBuilder& graph, uint32_t index,
                           ggml_tensor* x) const;
  // Heads of unit length, of columns from `first`.
  ggml_tensor* UnitHeads(GraphBuilder& graph, ggml_tensor* mixed,
                         int64_t first) const;

  const SsmSizes sizes_;
  const std::vector<DeltaNetWeights> nets_;
};

ggml_tensor* Qwen35::UnitHeads(GraphBuilder& graph, ggml_tensor* mixed,
                               int64_t first) const {
  ggml_context* context = graph.context();
  const auto dim = static_cast<float>(sizes_.state_dim);
  ggml_tensor* heads =
      graph.HeadColumns(mixed, first, {sizes_.groups, sizes_.state_dim});
  // x / sqrt(sum of x^2 + epsilon)
  heads = ggml_rms_norm(context, heads, hyperparameters().rms_epsilon / dim);
  return ggml_scale(context, heads, 1.0f / std::sqrt(dim));
}

ggml_tensor* Qwen35::AddDeltaNet(GraphBuilder& graph, uint32_t index,
                                 ggml_tensor* x) const {
  ggml_context* context = graph.context();
  const DeltaNetWeights& net = nets_[index];
  ggml_tensor* mixed = graph.ShortConv(
      index, {.in = graph.Linear(net.qkv, x), .weights = net.taps});
  mixed = ggml_silu(context, mixed);
  ggml_tensor* rate = ggml_softplus(
      context, ggml_add(context, graph.Linear(net.alpha, x), net.dt_bias));
  const int64_t keys = int64_t{sizes_.groups} * sizes_.state_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(sizes_.state_dim));
  return graph.DeltaRule(
      index,
      {.q = ggml_scale(context, UnitHeads(graph, mixed, 0), scale),
       .k = UnitHeads(graph, mixed, keys),
       .v = graph.HeadColumns(mixed, 2 * keys, {sizes_.heads, sizes_.head_dim}),
       .decay = ggml_exp(context, ggml_mul(context, rate, net.a)),
       .beta = ggml_sigmoid(context, graph.Linear(net.beta, x))});
}

ggml_tensor* Qwen35::Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                         bool only_wanted) const {
  const Hyperparameters& h = hyperparameters();
  if (!h.recurrent[index]) {
    return Decoder::Mix(graph, index, x, only_wanted);
  }
  ggml_context* context = graph.context();
  const DeltaNetWeights& net = nets_[index];
  ggml_tensor* normed = graph.Norm(x, layer(index).attn_norm, h.rms_epsilon);
  ggml_tensor* mixed = AddDeltaNet(graph, index, normed);
  if (only_wanted) {
    if (graph.wanted() == 0) {
      return nullptr;
    }
    mixed = graph.Wanted(mixed);
    normed = graph.Wanted(normed);
  }
  const Heads heads = {sizes_.heads, sizes_.head_dim};
  mixed = graph.Norm(graph.SplitHeads(mixed, heads), net.norm, h.rms_epsilon);
  mixed = ggml_reshape_2d(context, mixed, sizes_.inner(), mixed->ne[2]);
  return graph.Linear(
      net.out,
      ggml_swiglu_split(context, graph.Linear(net.gate, normed), mixed));
}

DeltaNetWeights DeclareDeltaNet(TensorScope& scope, int64_t width,
                                const SsmSizes& sizes) {
  DeltaNetWeights net;
  net.qkv = scope.Linear("attn_qkv", width, sizes.channels());
  net.gate = scope.Linear("attn_gate", width, sizes.inner());
  net.beta = scope.Linear("ssm_beta", width, sizes.heads);
  net.alpha = scope.Linear("ssm_alpha", width, sizes.heads);
  net.taps = scope.Numbers("ssm_conv1d.weight", sizes.taps, sizes.channels());
  net.dt_bias = scope.Numbers("ssm_dt.bias", sizes.heads);
  net.a = scope.Numbers("ssm_a", sizes.heads);
  net.norm = scope.Vector("ssm_norm", sizes.head_dim);
  net.out = scope.Linear("ssm_out", sizes.inner(), width);
  return net;
}

absl::Status ReadRecurrentLayers(const GgufFile& file, KeyReader& reader,
                                 Hyperparameters& h) {
  constexpr char kName[] = "attention.recurrent_layers";
  if (file.Has(reader.Key(kName))) {
    const std::vector<uint32_t> recurrent =
        reader.PerLayer(kName, h.num_layers, 0, 1);
    h.recurrent.assign(recurrent.begin(), recurrent.end());
    return reader.status();
  }
  const uint32_t period = reader.Uint("full_attention_interval", 1,
                                      h.num_layers + 1, kAttentionPeriod);
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    h.recurrent[layer] = (layer + 1) % period != 0;
  }
  return reader.status();
}

// Pairs of a head's elements rotate by the position in time, height or width,
// in turn; in text these are one. A pair that rotates by none of them would
// rotate otherwise than we do.
absl::Status CheckSections(const GgufFile& file, KeyReader& reader,
                           uint32_t pairs) {
  const std::string key = reader.Key("rope.dimension_sections");
  EW_ASSIGN_OR_RETURN(const std::vector<uint32_t> sections,
                      file.UintArray(key));
  uint64_t sum = 0;
  for (const uint32_t section : sections) {
    sum += section;
  }
  bool whole = sections.size() >= 3 && sum > 0;
  for (uint64_t pair = 0; whole && pair < pairs; ++pair) {
    const uint64_t sector = pair % sum;
    whole = sector < 3 * uint64_t{sections[sector % 3]};
  }
  if (!whole) {
    return absl::UnimplementedError(
        absl::StrCat(file.path(), ": key '", key, "' leaves some of ", pairs,
                     " pairs without a position; that does not run here"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SsmSizes> ReadDeltaNetSizes(const GgufFile& file,
                                           const std::string& architecture) {
  EW_ASSIGN_OR_RETURN(const SsmSizes sizes, ReadSsmSizes(file, architecture));
  if (sizes.head_dim != sizes.state_dim) {
    return file.Invalid(absl::StrCat(
        "ssm.inner_size over ssm.time_step_rank is ", sizes.head_dim,
        ", expected ssm.state_size, which is ", sizes.state_dim));
  }
  return sizes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeQwen35(
    Weights& weights, const LoadOptions& /*options*/) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NEOX}));
  EW_ASSIGN_OR_RETURN(const SsmSizes sizes,
                      ReadDeltaNetSizes(file, h.architecture));
  h.state = sizes.State();
  KeyReader reader(file, h.architecture);
  EW_RETURN_IF_ERROR(ReadRecurrentLayers(file, reader, h));
  EW_RETURN_IF_ERROR(CheckSections(file, reader, h.rope.dims / 2));

  std::vector<DeltaNetWeights> nets(h.num_layers);
  const auto declare = [&](TensorScope& scope, uint32_t index) {
    DecoderLayer layer;
    layer.attn_norm = scope.Vector("attn_norm", h.embedding_dim);
    layer.ffn_norm = scope.Vector("post_attention_norm", h.embedding_dim);
    layer.feed_forward = DeclareFeedForward(scope, h);
    if (h.recurrent[index]) {
      nets[index] = DeclareDeltaNet(scope, h.embedding_dim, sizes);
    } else {
      layer.attention =
          DeclareAttention(scope, h, {.head_norms = true, .gated = true});
    }
    return layer;
  };
  EW_ASSIGN_OR_RETURN(DecoderWeights decoder,
                      DeclareDecoder(weights, h, declare));
  return std::make_unique<Qwen35>(std::move(h), std::move(decoder), sizes,
                                  std::move(nets));
}

}  // namespace everwarm::models
