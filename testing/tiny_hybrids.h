// Small models with recurrent layers.
#ifndef EVERWARM_TESTING_TINY_HYBRIDS_H_
#define EVERWARM_TESTING_TINY_HYBRIDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ggml.h"
#include "testing/tiny_gguf.h"

namespace everwarm {

// The kinds of a model's layers, in order.
using TinyLayers = std::vector<bool>;  // true: recurrent
inline const TinyLayers kRecurrentFirst = {true, false, true, true, false};
inline const TinyLayers kRecurrentLast = {true, false, true};
inline const TinyLayers kRecurrentAll = {true, true};

// Norms and a feed-forward network; what mixes positions is the caller's.
inline void AddTinyLayerAround(TinyGguf& tiny, const std::string& prefix,
                               const char* second_norm = "ffn_norm") {
  tiny.AddNorm(prefix + "attn_norm", tiny.shape.width);
  tiny.AddNorm(prefix + second_norm, tiny.shape.width);
  tiny.AddFeedForward(prefix);
}

// Says by the KV heads which layers are recurrent.
inline void SetTinyKvHeads(TinyGguf& tiny, const TinyLayers& recurrent) {
  const std::string key =
      tiny.strings["general.architecture"] + ".attention.head_count_kv";
  tiny.uints.erase(key);
  for (const bool layer : recurrent) {
    tiny.int_arrays[key].push_back(
        layer ? 0 : static_cast<int32_t>(tiny.shape.kv_heads));
  }
}

inline TinyGguf TinyLfm2(ggml_type matrices,
                         const TinyLayers& recurrent = kRecurrentFirst) {
  // The heads of this architecture are as wide as the embedding.
  TinyGguf tiny("lfm2",
                {.layers = static_cast<uint32_t>(recurrent.size()),
                 .width = 96,
                 .heads = 3,
                 .kv_heads = 1},
                matrices);
  SetTinyKvHeads(tiny, recurrent);
  constexpr uint32_t kTaps = 3;
  tiny.uints["lfm2.shortconv.l_cache"] = kTaps;
  tiny.tensors["token_embd_norm.weight"] = tiny.tensors["output_norm.weight"];
  tiny.tensors.erase("output_norm.weight");
  for (uint32_t i = 0; i < recurrent.size(); ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    AddTinyLayerAround(tiny, prefix);
    if (!recurrent[i]) {
      tiny.AddAttention(prefix);
      tiny.AddHeadNorms(prefix);
      continue;
    }
    const uint32_t width = tiny.shape.width;
    tiny.AddMatrix(prefix + "shortconv.in_proj", width, 3 * width);
    tiny.AddMatrix(prefix + "shortconv.out_proj", width, width);
    tiny.AddNumbers(prefix + "shortconv.conv.weight", {kTaps, width}, 0.2f,
                    0.5f);
  }
  return tiny;
}

// Heads of an odd number and width, in one group or in each its own.
inline TinyGguf TinyGraniteHybrid(
    ggml_type matrices, const TinyLayers& recurrent = kRecurrentFirst) {
  TinyGguf tiny("granitehybrid",
                {.layers = static_cast<uint32_t>(recurrent.size()),
                 .heads = 2,
                 .kv_heads = 1},
                matrices);
  SetTinyKvHeads(tiny, recurrent);
  constexpr uint32_t kTaps = 4;
  constexpr uint32_t kState = 5;
  constexpr uint32_t kHeads = 8;
  constexpr uint32_t kGroups = 2;
  const uint32_t width = tiny.shape.width;
  const uint32_t inner = 2 * width;
  const uint32_t channels = inner + 2 * kGroups * kState;
  tiny.uints["granitehybrid.ssm.conv_kernel"] = kTaps;
  tiny.uints["granitehybrid.ssm.inner_size"] = inner;
  tiny.uints["granitehybrid.ssm.state_size"] = kState;
  tiny.uints["granitehybrid.ssm.time_step_rank"] = kHeads;
  tiny.uints["granitehybrid.ssm.group_count"] = kGroups;
  tiny.bools["granitehybrid.rope.scaling.finetuned"] = false;
  tiny.floats["granitehybrid.embedding_scale"] = 3.0f;
  tiny.floats["granitehybrid.residual_scale"] = 0.4f;
  tiny.floats["granitehybrid.attention.scale"] = 0.11f;
  tiny.floats["granitehybrid.logit_scale"] = 2.0f;
  for (uint32_t i = 0; i < recurrent.size(); ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    AddTinyLayerAround(tiny, prefix);
    if (!recurrent[i]) {
      tiny.AddAttention(prefix);
      continue;
    }
    tiny.AddMatrix(prefix + "ssm_in", width, inner + channels + kHeads);
    tiny.AddMatrix(prefix + "ssm_out", inner, width);
    tiny.AddNumbers(prefix + "ssm_conv1d.weight", {kTaps, channels}, 0.2f,
                    0.5f);
    tiny.AddNumbers(prefix + "ssm_conv1d.bias", {channels}, 0.0f, 0.3f);
    tiny.AddNumbers(prefix + "ssm_dt.bias", {kHeads}, -2.0f, 1.0f);
    tiny.AddNumbers(prefix + "ssm_a", {1, kHeads}, -1.0f, 0.2f);
    tiny.AddNumbers(prefix + "ssm_d", {1, kHeads}, 1.0f, 0.3f);
    tiny.AddNumbers(prefix + "ssm_norm.weight", {inner / kGroups, kGroups},
                    1.0f, 0.2f);
  }
  return tiny;
}

// Every third layer has attention.
inline TinyGguf TinyQwen35(ggml_type matrices, uint32_t layers = 5) {
  TinyGguf tiny("qwen35", {.layers = layers, .heads = 3, .kv_heads = 1},
                matrices);
  constexpr uint32_t kPeriod = 3;
  constexpr uint32_t kTaps = 4;
  constexpr uint32_t kHeadDim = 32;
  constexpr uint32_t kHeads = 6;
  constexpr uint32_t kKeyHeads = 3;
  const uint32_t width = tiny.shape.width;
  const uint32_t inner = kHeads * kHeadDim;
  const uint32_t channels = inner + 2 * kKeyHeads * kHeadDim;
  tiny.uints["qwen35.full_attention_interval"] = kPeriod;
  tiny.uints["qwen35.ssm.conv_kernel"] = kTaps;
  tiny.uints["qwen35.ssm.inner_size"] = inner;
  tiny.uints["qwen35.ssm.state_size"] = kHeadDim;
  tiny.uints["qwen35.ssm.time_step_rank"] = kHeads;
  tiny.uints["qwen35.ssm.group_count"] = kKeyHeads;
  tiny.int_arrays["qwen35.rope.dimension_sections"] = {6, 5, 5, 0};
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    AddTinyLayerAround(tiny, prefix, "post_attention_norm");
    if ((i + 1) % kPeriod == 0) {
      tiny.AddAttention(prefix);
      tiny.AddHeadNorms(prefix);
      tiny.AddMatrix(prefix + "attn_q", width,
                     2 * tiny.shape.heads * tiny.shape.head_dim);
      continue;
    }
    tiny.AddMatrix(prefix + "attn_qkv", width, channels);
    tiny.AddMatrix(prefix + "attn_gate", width, inner);
    tiny.AddMatrix(prefix + "ssm_beta", width, kHeads);
    tiny.AddMatrix(prefix + "ssm_alpha", width, kHeads);
    tiny.AddMatrix(prefix + "ssm_out", inner, width);
    tiny.AddNumbers(prefix + "ssm_conv1d.weight", {kTaps, channels}, 0.2f,
                    0.5f);
    tiny.AddNumbers(prefix + "ssm_dt.bias", {kHeads}, -2.0f, 1.0f);
    tiny.AddNumbers(prefix + "ssm_a", {kHeads}, -1.0f, 0.2f);
    tiny.AddNorm(prefix + "ssm_norm", kHeadDim);
  }
  return tiny;
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TINY_HYBRIDS_H_
