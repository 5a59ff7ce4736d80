#include "models/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/key_reader.h"

namespace everwarm::models {
namespace {

// Far above any model, far below what overflows a size.
constexpr uint32_t kMaxLayers = 512;
constexpr uint32_t kMaxEmbedding = 1 << 17;
constexpr uint32_t kMaxFeedForward = 1 << 20;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxContext = 1 << 30;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr uint32_t kMaxExperts = 1 << 12;
constexpr uint32_t kMaxExpertsUsed = 64;

// YaRN's magnitude correction; ggml multiplies by (1 + 0.1 ln(factor)) itself,
// so the net is 1 unless the file says more.
void SetYarn(KeyReader& reader, RopeParameters& rope) {
  rope.ext_factor = 1.0f;
  const float factor = 1.0f / rope.freq_scale;
  const float magnitude =
      factor <= 1.0f ? 1.0f : 0.1f * std::log(factor) + 1.0f;
  rope.attn_factor = magnitude / (1.0f + 0.1f * std::log(factor));
  rope.attn_factor *= reader.Float("rope.scaling.attn_factor", 1.0f);
  rope.beta_fast = reader.Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = reader.Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
}

void ReadRope(const GgufFile& file, KeyReader& reader, const KeyRules& rules,
              Hyperparameters& h) {
  RopeParameters& rope = h.rope;
  rope.dims = reader.Uint("rope.dimension_count", 2, h.k_dim, h.k_dim);
  if (rope.dims % 2 != 0) {
    reader.Fail(file.Invalid(
        absl::StrCat("key '", reader.Key("rope.dimension_count"), "' is ",
                     rope.dims, ", expected an even number")));
  }
  rope.original_context = reader.Uint("rope.scaling.original_context_length", 1,
                                      kMaxContext, h.train_context);
  rope.freq_base = reader.Float("rope.freq_base", 10000.0f);
  const auto scaling = file.StringOr(reader.Key("rope.scaling.type"), "linear");
  if (!scaling.ok()) {
    reader.Fail(scaling.status());
    return;
  }
  // The factor's older name is second.
  float factor = reader.Float("rope.scaling.factor", 0.0f);
  if (!file.Has(reader.Key("rope.scaling.factor"))) {
    factor = reader.Float("rope.scale_linear", 0.0f);
  }
  if (!(rope.freq_base > 0.0f && factor >= 0.0f)) {
    reader.Fail(file.Invalid(absl::StrCat("rope frequency base ",
                                          rope.freq_base, " or scaling factor ",
                                          factor, " is not positive")));
    return;
  }
  rope.freq_scale = factor == 0.0f ? 1.0f : 1.0f / factor;
  if (*scaling == "none") {
    rope.freq_scale = 1.0f;
  } else if (*scaling == "yarn") {
    SetYarn(reader, rope);
  } else if (*scaling == "linear" ||
             (*scaling == "longrope" && rules.longrope)) {
    rope.longrope = *scaling == "longrope";
    rope.attn_factor = reader.Float("rope.scaling.attn_factor", 1.0f);
  } else {
    reader.Fail(absl::UnimplementedError(
        absl::StrCat(file.path(), ": rope scaling '", *scaling,
                     "' does not run in architecture '", h.architecture,
                     "'; none, linear and yarn do")));
  }
}

// Where the architecture has recurrent layers by it, layers without KV heads
// are; all others have as many as each other.
void ReadKvHeads(const GgufFile& file, KeyReader& reader, const KeyRules& rules,
                 Hyperparameters& h) {
  constexpr char kName[] = "attention.head_count_kv";
  h.recurrent.assign(h.num_layers, false);
  if (!rules.recurrent_without_kv_heads || !file.IsArray(reader.Key(kName))) {
    h.num_kv_heads = reader.Uint(kName, 1, kMaxHeads, h.num_heads);
    return;
  }
  const std::vector<uint32_t> heads =
      reader.PerLayer(kName, h.num_layers, 0, kMaxHeads);
  h.num_kv_heads = 0;
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    h.recurrent[layer] = heads[layer] == 0;
    if (heads[layer] != 0 && h.num_kv_heads != 0 &&
        heads[layer] != h.num_kv_heads) {
      reader.Fail(absl::UnimplementedError(absl::StrCat(
          file.path(), ": key '", reader.Key(kName),
          "' differs between layers (", h.num_kv_heads, ", ", heads[layer],
          "); only equal layers, and layers without KV heads, run here")));
    }
    h.num_kv_heads = std::max(h.num_kv_heads, heads[layer]);
  }
  if (h.num_kv_heads == 0) {
    h.num_kv_heads = h.num_heads;  // there is no layer with attention
  }
}

void ReadExperts(const GgufFile& file, KeyReader& reader, const KeyRules& rules,
                 Hyperparameters& h) {
  const bool always = rules.experts == KeyRules::Experts::kAlways;
  h.num_experts =
      reader.Uint("expert_count", always ? 1 : 0, kMaxExperts,
                  always ? std::nullopt : std::optional<uint32_t>(0));
  if (h.num_experts == 0) {
    return;
  }
  if (rules.experts == KeyRules::Experts::kNone) {
    reader.Fail(absl::UnimplementedError(absl::StrCat(
        file.path(), ": experts (key '", reader.Key("expert_count"), "' is ",
        h.num_experts, ") do not run in architecture '", h.architecture, "'")));
    return;
  }
  h.experts_used = reader.Uint("expert_used_count", 1,
                               std::min(h.num_experts, kMaxExpertsUsed));
  h.expert_ff_dim =
      reader.Uint("expert_feed_forward_length", 1, kMaxFeedForward,
                  h.ff_dim > 0 ? std::optional(h.ff_dim) : std::nullopt);
  h.expert_weights_scale = reader.Float("expert_weights_scale", 1.0f);
}

}  // namespace

absl::StatusOr<Hyperparameters> ReadHyperparameters(const GgufFile& file,
                                                    const KeyRules& rules) {
  Hyperparameters h;
  EW_ASSIGN_OR_RETURN(h.architecture, file.String("general.architecture"));
  KeyReader reader(file, h.architecture);
  h.num_layers = reader.Uint("block_count", 1, kMaxLayers);
  h.num_predictors =
      reader.Uint("nextn_predict_layers", 0, h.num_layers - 1, 0);
  h.num_layers -= h.num_predictors;
  h.train_context = reader.Uint("context_length", 1, kMaxContext);
  h.embedding_dim = reader.Uint("embedding_length", 1, kMaxEmbedding);
  h.ff_dim = reader.Uint("feed_forward_length", 1, kMaxFeedForward,
                         rules.experts == KeyRules::Experts::kAlways
                             ? std::optional<uint32_t>(0)
                             : std::nullopt);
  h.num_heads = reader.Uint("attention.head_count", 1, kMaxHeads);
  ReadKvHeads(file, reader, rules, h);
  const uint32_t even_share = h.embedding_dim / h.num_heads;
  h.k_dim = reader.Uint("attention.key_length", 2, kMaxHeadDim, even_share);
  h.v_dim = reader.Uint("attention.value_length", 1, kMaxHeadDim, even_share);
  h.rms_epsilon =
      reader.Float("attention.layer_norm_rms_epsilon", std::nullopt);
  EW_RETURN_IF_ERROR(reader.status());
  if (h.num_heads % h.num_kv_heads != 0) {
    return file.Invalid(absl::StrCat(h.num_heads,
                                     " attention heads are not a multiple of ",
                                     h.num_kv_heads, " KV heads"));
  }
  if (h.k_dim < 2 || h.k_dim > kMaxHeadDim || h.v_dim < 1 ||
      h.v_dim > kMaxHeadDim) {
    return file.Invalid(absl::StrCat("heads of ", h.k_dim, " and ", h.v_dim,
                                     " elements, expected 2 to ", kMaxHeadDim));
  }
  if (!(h.rms_epsilon >= 0.0f && h.rms_epsilon < 1.0f)) {
    return file.Invalid(
        absl::StrCat("norm epsilon ", h.rms_epsilon, " is not in [0, 1)"));
  }
  h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.k_dim));
  h.rope.type = rules.rope_type;
  ReadRope(file, reader, rules, h);
  ReadExperts(file, reader, rules, h);
  EW_RETURN_IF_ERROR(reader.status());
  h.windows.assign(h.num_layers, 0);

  const GgufTensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr) {
    return file.Invalid("tensor 'token_embd.weight' is missing");
  }
  if (embedding->ne[1] < 1 || embedding->ne[1] > kMaxVocabulary) {
    return file.Invalid(absl::StrCat(
        "tensor 'token_embd.weight' has shape ", ShapeText(embedding->ne),
        ", a vocabulary of 1 to ", kMaxVocabulary, " tokens was expected"));
  }
  h.vocab_size = static_cast<uint32_t>(embedding->ne[1]);
  return h;
}

absl::Status ReadWindows(const GgufFile& file, uint32_t period,
                         Hyperparameters& h) {
  KeyReader reader(file, h.architecture);
  const std::vector<uint32_t> sizes =
      reader.PerLayer("attention.sliding_window", h.num_layers, 0, kMaxContext);
  EW_RETURN_IF_ERROR(reader.status());
  const std::string pattern = reader.Key("attention.sliding_window_pattern");
  if (file.IsArray(pattern)) {
    EW_ASSIGN_OR_RETURN(const std::vector<uint32_t> windowed,
                        file.UintArray(pattern));
    if (windowed.size() < h.num_layers) {
      return file.Invalid(absl::StrCat("key '", pattern, "' has ",
                                       windowed.size(), " elements for ",
                                       h.num_layers, " layers"));
    }
    for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
      h.windows[layer] = windowed[layer] != 0 ? sizes[layer] : 0;
    }
    return absl::OkStatus();
  }
  EW_ASSIGN_OR_RETURN(period, file.UintOr(pattern, period));
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    const bool windowed = period == 0 || layer % period != period - 1;
    h.windows[layer] = windowed ? sizes[layer] : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeParameters> ReadWindowRope(const GgufFile& file,
                                              const Hyperparameters& h,
                                              float freq_base) {
  RopeParameters rope = h.rope;
  KeyReader reader(file, h.architecture);
  rope.freq_base = reader.Float("rope.freq_base_swa", freq_base);
  if (!(rope.freq_base > 0.0f)) {
    reader.Fail(file.Invalid(absl::StrCat("rope frequency base of windows ",
                                          rope.freq_base, " is not positive")));
  }
  EW_RETURN_IF_ERROR(reader.status());
  return rope;
}

}  // namespace everwarm::models
