// What files of one architecture differ in, as further models for the tests
// that all must pass.
#ifndef EVERWARM_TESTING_TINY_VARIANTS_H_
#define EVERWARM_TESTING_TINY_VARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ggml.h"
#include "testing/tiny_architectures.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_hybrids.h"
#include "testing/tiny_latent.h"

namespace everwarm {

inline TinyGguf TinyLfm2WithWindow(ggml_type matrices) {
  TinyGguf tiny = TinyLfm2(matrices);
  tiny.uints["lfm2.attention.sliding_window"] = 20;
  return tiny;
}

// Bamba's form: heads are rotated.
inline TinyGguf TinyRotatingGraniteHybrid(ggml_type matrices) {
  TinyGguf tiny = TinyGraniteHybrid(matrices, kRecurrentLast);
  tiny.bools["granitehybrid.rope.scaling.finetuned"] = true;
  return tiny;
}

inline TinyGguf TinyGraniteHybridWithExperts(ggml_type matrices) {
  TinyGguf tiny = TinyGraniteHybrid(matrices);
  constexpr uint32_t kShared = 64;
  tiny.shape.experts = 5;
  tiny.uints["granitehybrid.expert_count"] = tiny.shape.experts;
  tiny.uints["granitehybrid.expert_used_count"] = 2;
  tiny.uints["granitehybrid.expert_shared_feed_forward_length"] = kShared;
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      tiny.tensors.erase(prefix + name + ".weight");
    }
    tiny.AddExperts(prefix);
    tiny.AddMatrix(prefix + "ffn_gate_shexp", tiny.shape.width, kShared);
    tiny.AddMatrix(prefix + "ffn_up_shexp", tiny.shape.width, kShared);
    tiny.AddMatrix(prefix + "ffn_down_shexp", kShared, tiny.shape.width);
  }
  return tiny;
}

// Which layers are recurrent is said one by one.
inline TinyGguf TinyQwen35ByLayer(ggml_type matrices) {
  TinyGguf tiny = TinyQwen35(matrices, 3);
  tiny.uints["qwen35.full_attention_interval"] = 1;
  tiny.int_arrays["qwen35.attention.recurrent_layers"] = {1, 1, 0};
  return tiny;
}

// A fourth layer predicts one token more; nobody asks it.
inline TinyGguf TinyQwen35WithPredictor(ggml_type matrices) {
  TinyGguf tiny = TinyQwen35(matrices, 3);
  tiny.uints["qwen35.block_count"] = 4;
  tiny.uints["qwen35.nextn_predict_layers"] = 1;
  const int64_t width = tiny.shape.width;
  for (const auto& [name, tensor] : TinyQwen35(matrices, 3).tensors) {
    if (name.rfind("blk.2.", 0) == 0) {
      tiny.tensors["blk.3." + name.substr(6)] = tensor;
    }
  }
  tiny.AddMatrix("blk.3.nextn.eh_proj", 2 * width, width);
  tiny.AddNorm("blk.3.nextn.enorm", width);
  tiny.AddNorm("blk.3.nextn.hnorm", width);
  return tiny;
}

// Experts as in DeepSeek V2: chosen by a softmax, their weights as they are.
inline TinyGguf TinyDeepSeek2WithSoftmax(ggml_type matrices) {
  TinyGguf tiny = TinyDeepSeek2(matrices);
  tiny.uints.erase("deepseek2.expert_gating_func");
  tiny.bools.erase("deepseek2.expert_weights_norm");
  for (uint32_t i = 1; i < tiny.shape.layers; ++i) {
    tiny.tensors.erase(TinyGguf::Prefix(i) + "exp_probs_b.bias");
  }
  return tiny;
}

// As in DeepSeek V3: experts come out of two of three groups.
inline TinyGguf TinyDeepSeek2WithGroups(ggml_type matrices) {
  TinyGguf tiny = TinyDeepSeek2(matrices, 2);
  tiny.shape.experts = 9;
  tiny.uints["deepseek2.expert_count"] = tiny.shape.experts;
  tiny.uints["deepseek2.expert_group_count"] = 3;
  tiny.uints["deepseek2.expert_group_used_count"] = 2;
  for (uint32_t i = 1; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddExperts(prefix);
    tiny.AddNumbers(prefix + "exp_probs_b.bias", {tiny.shape.experts}, 0.0f,
                    0.2f);
  }
  return tiny;
}

// Queries as in DeepSeek V2 Lite: not compressed. So many layers would make
// much of small differences, and experts even more: there are none, and each
// layer adds little.
inline TinyGguf TinyDeepSeek2Lite(ggml_type matrices) {
  TinyGguf tiny = TinyDeepSeek2(matrices, 26, {.q_rank = 0});
  for (const char* key :
       {"expert_count", "expert_used_count", "expert_feed_forward_length"}) {
    tiny.uints.erase("deepseek2." + std::string(key));
  }
  tiny.uints["deepseek2.expert_feed_forward_length"] = tiny.shape.feed_forward;
  tiny.uints["deepseek2.leading_dense_block_count"] = tiny.shape.layers;
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    for (const char* name :
         {"ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight",
          "ffn_down_exps.weight", "exp_probs_b.bias", "ffn_gate_shexp.weight",
          "ffn_up_shexp.weight", "ffn_down_shexp.weight"}) {
      tiny.tensors.erase(prefix + name);
    }
    tiny.AddFeedForward(prefix);
    for (const char* name : {"attn_output.weight", "ffn_down.weight"}) {
      tiny.tensors.at(prefix + name).deviation /= 8.0f;
    }
  }
  return tiny;
}

// `multiplier`: what the file says that scores grow by, with the context's
// logarithm; 0: nothing.
inline TinyGguf TinyDeepSeek2WithYarn(ggml_type matrices, float multiplier) {
  TinyGguf tiny = TinyDeepSeek2(
      matrices, 2,
      {.kv_rank = 96, .rope_dim = 10, .nope_dim = 64, .v_dim = 32});
  tiny.strings["deepseek2.rope.scaling.type"] = "yarn";
  tiny.floats["deepseek2.rope.scaling.factor"] = 40.0f;
  tiny.uints["deepseek2.rope.scaling.original_context_length"] = 64;
  if (multiplier != 0.0f) {
    tiny.floats["deepseek2.rope.scaling.yarn_log_multiplier"] = multiplier;
  }
  // Scores of about unit size, as trained models have them.
  for (uint32_t i = 0; i < tiny.shape.layers; ++i) {
    tiny.tensors.at(TinyGguf::Prefix(i) + "attn_q_b.weight").deviation /= 3.0f;
  }
  return tiny;
}

inline std::vector<TinyArchitecture> TinyVariants() {
  return {
      {"lfm2_ending_in_a_convolution",
       [](ggml_type type) { return TinyLfm2(type, kRecurrentLast); }},
      {"lfm2_with_window", TinyLfm2WithWindow},
      {"granitehybrid_with_rope", TinyRotatingGraniteHybrid},
      {"granitehybrid_with_experts", TinyGraniteHybridWithExperts},
      {"qwen35_by_layer", TinyQwen35ByLayer},
      {"qwen35_with_predictor", TinyQwen35WithPredictor},
      {"deepseek2_with_softmax", TinyDeepSeek2WithSoftmax},
      {"deepseek2_with_groups", TinyDeepSeek2WithGroups},
      {"deepseek2_lite", TinyDeepSeek2Lite},
      {"deepseek2_with_yarn",
       [](ggml_type type) { return TinyDeepSeek2WithYarn(type, 0.0f); }},
      {"deepseek2_with_yarn_and_multiplier",
       [](ggml_type type) { return TinyDeepSeek2WithYarn(type, 0.0707f); }},
  };
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TINY_VARIANTS_H_
