// One small model of each architecture, for the tests that all must pass: head
// counts are odd where the architecture lets them be.
#ifndef EVERWARM_TESTING_TINY_ARCHITECTURES_H_
#define EVERWARM_TESTING_TINY_ARCHITECTURES_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "ggml.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_hybrids.h"
#include "testing/tiny_latent.h"

namespace everwarm {

struct TinyArchitecture {
  std::string name;
  TinyGguf (*make)(ggml_type matrices);
  // A file without them is another model, not a damaged one.
  bool biases_optional = true;
};
inline void PrintTo(const TinyArchitecture& tiny, std::ostream* out) {
  *out << tiny.name;
}

inline TinyGguf TinyQwen2(ggml_type matrices) {
  // The heads of this architecture are as wide as the embedding.
  TinyGguf tiny("qwen2", {.width = 96, .heads = 3, .kv_heads = 1}, matrices);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddLayer(prefix);
    for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
      tiny.AddBiasOf(prefix + name);
    }
  }
  return tiny;
}

inline TinyGguf TinyQwen3(ggml_type matrices) {
  TinyGguf tiny("qwen3", {.heads = 5, .kv_heads = 1}, matrices);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    tiny.AddLayer(TinyGguf::Prefix(i));
    tiny.AddHeadNorms(TinyGguf::Prefix(i));
  }
  return tiny;
}

inline TinyGguf TinyQwen3Moe(ggml_type matrices) {
  TinyGguf tiny("qwen3moe",
                {.heads = 6, .kv_heads = 2, .experts = 5, .experts_used = 2},
                matrices);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddNorm(prefix + "attn_norm", tiny.shape.width);
    tiny.AddAttention(prefix);
    tiny.AddHeadNorms(prefix);
    tiny.AddNorm(prefix + "ffn_norm", tiny.shape.width);
    tiny.AddExperts(prefix);
  }
  return tiny;
}

inline TinyGguf TinyMixtral(ggml_type matrices) {
  TinyGguf tiny("llama", {.experts = 4, .experts_used = 2}, matrices);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddNorm(prefix + "attn_norm", tiny.shape.width);
    tiny.AddAttention(prefix);
    tiny.AddNorm(prefix + "ffn_norm", tiny.shape.width);
    tiny.AddExperts(prefix);
  }
  return tiny;
}

// The last of its layers does not rotate.
inline TinyGguf TinySmolLm3(ggml_type matrices) {
  TinyGguf tiny("smollm3", {.layers = 4, .heads = 3, .kv_heads = 3}, matrices);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    tiny.AddLayer(TinyGguf::Prefix(i));
  }
  return tiny;
}

// Rotates a part of each head, by factors for contexts of its training and for
// longer ones.
inline TinyGguf TinyPhi3(ggml_type matrices) {
  TinyGguf tiny("phi3", {.width = 96, .heads = 3, .kv_heads = 1}, matrices);
  const TinyGguf::Shape& shape = tiny.shape;
  constexpr uint32_t kRotated = 24;
  tiny.uints["phi3.rope.dimension_count"] = kRotated;
  tiny.uints["phi3.rope.scaling.original_context_length"] = 1024;
  tiny.uints["phi3.attention.sliding_window"] = 64;
  tiny.floats["phi3.rope.scaling.attn_factor"] = 1.19f;
  tiny.tensors["rope_factors_long.weight"] = {
      GGML_TYPE_F32, {kRotated / 2}, 9.0f, 2.0f};
  tiny.tensors["rope_factors_short.weight"] = {
      GGML_TYPE_F32, {kRotated / 2}, 1.3f, 0.2f};
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    const uint32_t q = shape.heads * shape.head_dim;
    tiny.AddNorm(prefix + "attn_norm", shape.width);
    tiny.AddMatrix(prefix + "attn_qkv", shape.width,
                   q + 2 * shape.kv_heads * shape.head_dim);
    tiny.AddMatrix(prefix + "attn_output", q, shape.width);
    tiny.AddNorm(prefix + "ffn_norm", shape.width);
    tiny.AddMatrix(prefix + "ffn_up", shape.width, 2 * shape.feed_forward);
    tiny.AddMatrix(prefix + "ffn_down", shape.feed_forward, shape.width);
  }
  return tiny;
}

inline TinyGguf TinyGptOss(ggml_type matrices) {
  TinyGguf tiny(
      "gpt-oss",
      {.layers = 2, .heads = 6, .kv_heads = 2, .experts = 5, .experts_used = 3},
      matrices);
  tiny.uints.erase("gpt-oss.feed_forward_length");
  tiny.uints["gpt-oss.attention.sliding_window"] = 20;
  tiny.strings["gpt-oss.rope.scaling.type"] = "yarn";
  tiny.floats["gpt-oss.rope.scaling.factor"] = 32.0f;
  tiny.floats["gpt-oss.rope.freq_base"] = 150000.0f;
  tiny.uints["gpt-oss.rope.scaling.original_context_length"] = 64;
  tiny.AddMatrix("output", tiny.shape.width, TinyGguf::kVocabulary);
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddNorm(prefix + "attn_norm", tiny.shape.width);
    tiny.AddAttention(prefix);
    tiny.tensors[prefix + "attn_sinks.weight"] = {
        GGML_TYPE_F32, {tiny.shape.heads}, 1.0f, 1.0f};
    tiny.AddNorm(prefix + "post_attention_norm", tiny.shape.width);
    tiny.AddExperts(prefix);
    for (const char* name :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp",
          "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
      tiny.AddBiasOf(prefix + name);
    }
  }
  return tiny;
}

// Add an architecture here, and all tests that name none try it.
inline std::vector<TinyArchitecture> TinyArchitectures() {
  return {
      {"llama", [](ggml_type type) { return TinyGguf::Llama(2, type); }},
      {"mixtral", TinyMixtral},
      {"gemma3", [](ggml_type type) { return TinyGguf::Gemma3(7, type); }},
      {"qwen2", TinyQwen2},
      {"qwen3", TinyQwen3},
      {"qwen3moe", TinyQwen3Moe},
      {"smollm3", TinySmolLm3},
      {"phi3", TinyPhi3},
      {"gptoss", TinyGptOss, false},
      {"lfm2", [](ggml_type type) { return TinyLfm2(type); }},
      {"granitehybrid", [](ggml_type type) { return TinyGraniteHybrid(type); },
       false},
      {"deepseek2", [](ggml_type type) { return TinyDeepSeek2(type); }},
      {"qwen35", [](ggml_type type) { return TinyQwen35(type); }, false},
  };
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TINY_ARCHITECTURES_H_
