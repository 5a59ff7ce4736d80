// Granite 4 (hybrid): layers of Mamba-2, and a few with attention.
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "models/decoder.h"
#include "models/key_reader.h"
#include "models/mamba2_layer.h"
#include "models/ssm_sizes.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kMaxSharedExpert = 1 << 20;

class GraniteHybrid final : public Decoder {
 public:
  // `mambas` by layer; those of layers with attention are empty.
  GraniteHybrid(Hyperparameters hyperparameters, DecoderWeights weights,
                const SsmSizes& sizes, std::vector<Mamba2Weights> mambas)
      : Decoder(std::move(hyperparameters), std::move(weights)),
        sizes_(sizes),
        mambas_(std::move(mambas)) {}

 protected:
  ggml_tensor* Mix(GraphBuilder& graph, uint32_t index, ggml_tensor* x,
                   bool only_wanted) const override {
    const Hyperparameters& h = hyperparameters();
    if (!h.recurrent[index]) {
      return Decoder::Mix(graph, index, x, only_wanted);
    }
    ggml_tensor* normed = graph.Norm(x, layer(index).attn_norm, h.rms_epsilon);
    return AddMamba2(graph, h, sizes_, mambas_[index],
                     {index, normed, only_wanted});
  }

 private:
  const SsmSizes sizes_;
  const std::vector<Mamba2Weights> mambas_;
};

struct GraniteKeys {
  bool rotates = true;
  uint32_t shared_expert_dim = 0;  // 0: none
};

GraniteKeys ReadGraniteKeys(KeyReader& reader, Hyperparameters& h) {
  // Where a factor is 0 the file has none.
  const auto factor = [&](const char* name, float missing) {
    const float value = reader.Float(name, 0.0f);
    return value == 0.0f ? missing : value;
  };
  h.embedding_scale = factor("embedding_scale", 1.0f);
  h.residual_scale = factor("residual_scale", 1.0f);
  h.attention_scale = factor("attention.scale", h.attention_scale);
  h.logit_scale = 1.0f / factor("logit_scale", 1.0f);
  GraniteKeys keys;
  // The key says whether positions are rotated at all.
  keys.rotates = reader.Uint("rope.scaling.finetuned", 0, 1, 1) == 1;
  keys.shared_expert_dim =
      reader.Uint("expert_shared_feed_forward_length", 0, kMaxSharedExpert, 0);
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Architecture>> MakeGraniteHybrid(
    Weights& weights, const LoadOptions& /*options*/) {
  const GgufFile& file = weights.file();
  EW_ASSIGN_OR_RETURN(
      Hyperparameters h,
      ReadHyperparameters(file, {.rope_type = GGML_ROPE_TYPE_NORMAL,
                                 .experts = KeyRules::Experts::kSome,
                                 .recurrent_without_kv_heads = true}));
  EW_ASSIGN_OR_RETURN(const SsmSizes sizes, ReadSsmSizes(file, h.architecture));
  h.state = sizes.State();
  KeyReader reader(file, h.architecture);
  const GraniteKeys keys = ReadGraniteKeys(reader, h);
  EW_RETURN_IF_ERROR(reader.status());

  std::vector<Mamba2Weights> mambas(h.num_layers);
  const auto declare = [&](TensorScope& scope, uint32_t index) {
    DecoderLayer layer;
    if (h.recurrent[index]) {
      layer = DeclareLayerAround(scope, h);
      mambas[index] = DeclareMamba2(scope, h, sizes);
    } else {
      layer = DeclareUsualLayer(scope, h, {});
    }
    if (!keys.rotates) {
      layer.attention.rope.reset();
    }
    if (h.num_experts > 0 && keys.shared_expert_dim > 0) {
      layer.shared_expert =
          DeclareSharedExpert(scope, h, keys.shared_expert_dim);
    }
    return layer;
  };
  EW_ASSIGN_OR_RETURN(DecoderWeights decoder,
                      DeclareDecoder(weights, h, declare));
  return std::make_unique<GraniteHybrid>(std::move(h), std::move(decoder),
                                         sizes, std::move(mambas));
}

}  // namespace everwarm::models
