// LFM2: layers that mix positions by a short convolution between two gates, and
// some with attention.
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/recurrent.h"
#include "models/decoder.h"
#include "models/key_reader.h"

namespace everwarm::models {
namespace {

struct ConvWeights {
  LinearWeights in;  // gates of input and output, and the input: 3 * width
  ggml_tensor* taps = nullptr;  // [width, taps]
  LinearWeights out;
};

class Lfm2 final : public Decoder {
 public:
  // `convs` by layer; those of layers with attention are empty.
  Lfm2(Hyperparameters hyperparameters, DecoderWeights weights,
       std::vector<ConvWeights> convs)
      : Decoder(std::move(hyperparameters), std::move(weights)),
        convs_(std::move(convs)) {}

 protected:
  ggml_tensor* Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                   bool only_wanted) const override;

 private:
  const std::vector<ConvWeights> convs_;
};

ggml_tensor* Lfm2::Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                       bool only_wanted) const {
  const Hyperparameters& h = hyperparameters();
  if (!h.recurrent[index]) {
    return Decoder::Mix(graph, index, x, only_wanted);
  }
  ggml_context* context = graph.context();
  const ConvWeights& weights = convs_[index];
  ggml_tensor* projected = graph.Linear(
      weights.in, graph.Norm(x, layer(index).attn_norm, h.rms_epsilon));
  const auto third = [&](int64_t n) {
    return graph.Columns(projected, n * h.embedding_dim, h.embedding_dim);
  };
  ggml_tensor* mixed = graph.ShortConv(
      index,
      {.in = ggml_mul(context, third(0), third(2)), .weights = weights.taps});
  ggml_tensor* gate = third(1);
  if (only_wanted) {
    if (graph.wanted() == 0) {
      return nullptr;
    }
    mixed = graph.Wanted(mixed);
    gate = graph.Wanted(gate);
  }
  return graph.Linear(weights.out, ggml_mul(context, mixed, gate));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeLfm2(
    Weights& weights, const LoadOptions& /*options*/) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NEOX,
                                 .recurrent_without_kv_heads = true}));
  EW_RETURN_IF_ERROR(ReadWindows(file, 0, h));
  KeyReader reader(file, h.architecture);
  const uint32_t taps = reader.Uint("shortconv.l_cache", 2, kernels::kMaxTaps);
  EW_RETURN_IF_ERROR(reader.status());
  const uint32_t width = h.embedding_dim;
  h.state.convolution = (taps - 1) * width;

  std::vector<ConvWeights> convs(h.num_layers);
  const auto declare = [&](TensorScope& scope, uint32_t index) {
    if (!h.recurrent[index]) {
      return DeclareUsualLayer(scope, h, {.head_norms = true});
    }
    ConvWeights& conv = convs[index];
    conv.in = scope.Linear("shortconv.in_proj", width, 3 * int64_t{width});
    conv.taps = scope.Numbers("shortconv.conv.weight", taps, width);
    conv.out = scope.Linear("shortconv.out_proj", width, width);
    return DeclareLayerAround(scope, h);
  };
  EW_ASSIGN_OR_RETURN(DecoderWeights decoder,
                      DeclareDecoder(weights, h, declare, "token_embd_norm"));
  return std::make_unique<Lfm2>(std::move(h), std::move(decoder),
                                std::move(convs));
}

}  // namespace everwarm::models
