// Small models whose layers keep a latent (MLA).
#ifndef EVERWARM_TESTING_TINY_LATENT_H_
#define EVERWARM_TESTING_TINY_LATENT_H_

#include <cstdint>
#include <string>

#include "ggml.h"
#include "testing/tiny_gguf.h"

namespace everwarm {

struct TinyLatentShape {
  uint32_t kv_rank = 32;
  uint32_t rope_dim = 12;
  uint32_t nope_dim = 32;
  uint32_t v_dim = 32;
  uint32_t q_rank = 32;  // 0: queries are not compressed
};

// The first layer has one feed-forward network, the others experts of the form
// of DeepSeek V3. llama.cpp takes the form of queries from the number of
// layers: those with q_rank 0 need 26 or 27.
inline TinyGguf TinyDeepSeek2(ggml_type matrices, uint32_t layers = 3,
                              const TinyLatentShape& latent = {}) {
  TinyGguf tiny("deepseek2",
                {.layers = layers,
                 .heads = 3,
                 .kv_heads = 1,
                 .experts = 5,
                 .experts_used = 2},
                matrices);
  const TinyGguf::Shape& shape = tiny.shape;
  const uint32_t k_dim = latent.kv_rank + latent.rope_dim;
  const uint32_t q_dim = latent.nope_dim + latent.rope_dim;
  constexpr uint32_t kSigmoid = 2;
  tiny.uints["deepseek2.attention.key_length"] = k_dim;
  tiny.uints["deepseek2.attention.value_length"] = latent.kv_rank;
  tiny.uints["deepseek2.attention.key_length_mla"] = q_dim;
  tiny.uints["deepseek2.attention.value_length_mla"] = latent.v_dim;
  tiny.uints["deepseek2.attention.kv_lora_rank"] = latent.kv_rank;
  tiny.uints["deepseek2.attention.q_lora_rank"] = latent.q_rank;
  tiny.uints["deepseek2.rope.dimension_count"] = latent.rope_dim;
  tiny.uints["deepseek2.leading_dense_block_count"] = 1;
  tiny.uints["deepseek2.expert_shared_count"] = 2;
  tiny.uints["deepseek2.expert_gating_func"] = kSigmoid;
  tiny.bools["deepseek2.expert_weights_norm"] = true;
  tiny.floats["deepseek2.expert_weights_scale"] = 1.7f;
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = TinyGguf::Prefix(i);
    tiny.AddNorm(prefix + "attn_norm", shape.width);
    if (latent.q_rank > 0) {
      tiny.AddMatrix(prefix + "attn_q_a", shape.width, latent.q_rank);
      tiny.AddNorm(prefix + "attn_q_a_norm", latent.q_rank);
      tiny.AddMatrix(prefix + "attn_q_b", latent.q_rank, shape.heads * q_dim);
    } else {
      tiny.AddMatrix(prefix + "attn_q", shape.width, shape.heads * q_dim);
    }
    tiny.AddMatrix(prefix + "attn_kv_a_mqa", shape.width, k_dim);
    tiny.AddNorm(prefix + "attn_kv_a_norm", latent.kv_rank);
    tiny.AddMatrices(prefix + "attn_k_b", latent.nope_dim, latent.kv_rank,
                     shape.heads);
    tiny.AddMatrices(prefix + "attn_v_b", latent.kv_rank, latent.v_dim,
                     shape.heads);
    tiny.AddMatrix(prefix + "attn_output", shape.heads * latent.v_dim,
                   shape.width);
    tiny.AddNorm(prefix + "ffn_norm", shape.width);
    if (i == 0) {
      tiny.AddFeedForward(prefix);
      continue;
    }
    tiny.AddExperts(prefix);
    tiny.AddNumbers(prefix + "exp_probs_b.bias", {shape.experts}, 0.0f, 0.2f);
    const uint32_t shared = 2 * shape.feed_forward;
    tiny.AddMatrix(prefix + "ffn_gate_shexp", shape.width, shared);
    tiny.AddMatrix(prefix + "ffn_up_shexp", shape.width, shared);
    tiny.AddMatrix(prefix + "ffn_down_shexp", shared, shape.width);
  }
  return tiny;
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TINY_LATENT_H_
