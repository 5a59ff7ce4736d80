// Small models with random weights, written as GGUF files by ggml's own writer.
#ifndef EVERWARM_TESTING_TINY_GGUF_H_
#define EVERWARM_TESTING_TINY_GGUF_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "gguf.h"

namespace everwarm {

// Keys and tensors of a model that is not written yet; tests change what they
// like first. The same settings give the same file.
//
// Threads: one.
class TinyGguf {
 public:
  static constexpr uint32_t kVocabulary = 96;

  // Multiples of 32 where a quantised row is as long.
  struct Shape {
    uint32_t layers = 2;
    uint32_t width = 64;
    uint32_t feed_forward = 96;
    uint32_t heads = 4;
    uint32_t kv_heads = 2;
    uint32_t head_dim = 32;
    uint32_t experts = 0;
    uint32_t experts_used = 0;
  };

  struct Tensor {
    ggml_type type = GGML_TYPE_F32;
    std::vector<int64_t> ne;  // innermost first
    // Values are `mean` and, scaled, a normal deviation.
    float mean = 0.0f;
    float deviation = 0.0f;
  };

  // Keys and tensors outside the layers.
  TinyGguf(const std::string& architecture, const Shape& the_shape,
           ggml_type matrices)
      : shape(the_shape), matrices_(matrices) {
    const std::string prefix = architecture + ".";
    strings["general.architecture"] = architecture;
    strings["general.name"] = "tiny";
    strings["tokenizer.ggml.model"] = "no_vocab";
    uints[prefix + "vocab_size"] = kVocabulary;
    uints[prefix + "block_count"] = shape.layers;
    uints[prefix + "context_length"] = 2048;
    uints[prefix + "embedding_length"] = shape.width;
    uints[prefix + "feed_forward_length"] = shape.feed_forward;
    uints[prefix + "attention.head_count"] = shape.heads;
    uints[prefix + "attention.head_count_kv"] = shape.kv_heads;
    uints[prefix + "attention.key_length"] = shape.head_dim;
    uints[prefix + "attention.value_length"] = shape.head_dim;
    uints[prefix + "rope.dimension_count"] = shape.head_dim;
    floats[prefix + "attention.layer_norm_rms_epsilon"] = 1e-5f;
    if (shape.experts > 0) {
      uints[prefix + "expert_count"] = shape.experts;
      uints[prefix + "expert_used_count"] = shape.experts_used;
      uints[prefix + "expert_feed_forward_length"] = shape.feed_forward;
    }
    tensors["token_embd.weight"] = {
        matrices, {shape.width, kVocabulary}, 0.0f, 1.0f};
    AddNorm("output_norm", shape.width);
  }

  static TinyGguf Llama(uint32_t layers = 2,
                        ggml_type matrices = GGML_TYPE_F32) {
    TinyGguf tiny("llama", {.layers = layers}, matrices);
    for (uint32_t i = 0; i < layers; ++i) {
      tiny.AddLayer(Prefix(i));
    }
    return tiny;
  }

  static TinyGguf Gemma3(uint32_t layers = 3,
                         ggml_type matrices = GGML_TYPE_F32) {
    TinyGguf tiny("gemma3", {.layers = layers}, matrices);
    tiny.uints["gemma3.attention.sliding_window"] = 16;
    tiny.uints["gemma3.attention.sliding_window_pattern"] = 3;
    for (uint32_t i = 0; i < layers; ++i) {
      tiny.AddLayer(Prefix(i));
      tiny.AddHeadNorms(Prefix(i));
      tiny.AddNorm(Prefix(i) + "post_attention_norm", tiny.shape.width);
      tiny.AddNorm(Prefix(i) + "post_ffw_norm", tiny.shape.width);
    }
    return tiny;
  }

  static std::string Prefix(uint32_t layer) {
    return absl::StrCat("blk.", layer, ".");
  }

  // Attention and a feed-forward network, with their norms.
  void AddLayer(const std::string& prefix) {
    AddNorm(prefix + "attn_norm", shape.width);
    AddAttention(prefix);
    AddNorm(prefix + "ffn_norm", shape.width);
    AddFeedForward(prefix);
  }
  void AddFeedForward(const std::string& prefix) {
    AddMatrix(prefix + "ffn_gate", shape.width, shape.feed_forward);
    AddMatrix(prefix + "ffn_up", shape.width, shape.feed_forward);
    AddMatrix(prefix + "ffn_down", shape.feed_forward, shape.width);
  }
  void AddAttention(const std::string& prefix) {
    const uint32_t q = shape.heads * shape.head_dim;
    const uint32_t kv = shape.kv_heads * shape.head_dim;
    AddMatrix(prefix + "attn_q", shape.width, q);
    AddMatrix(prefix + "attn_k", shape.width, kv);
    AddMatrix(prefix + "attn_v", shape.width, kv);
    AddMatrix(prefix + "attn_output", q, shape.width);
  }
  void AddHeadNorms(const std::string& prefix) {
    AddNorm(prefix + "attn_q_norm", shape.head_dim);
    AddNorm(prefix + "attn_k_norm", shape.head_dim);
  }
  // A router and what it chooses from.
  void AddExperts(const std::string& prefix) {
    const std::string router = prefix + "ffn_gate_inp.weight";
    tensors[router] = {GGML_TYPE_F32,
                       {shape.width, shape.experts},
                       0.0f,
                       MatrixDeviation(shape.width)};
    AddMatrices(prefix + "ffn_gate_exps", shape.width, shape.feed_forward,
                shape.experts);
    AddMatrices(prefix + "ffn_up_exps", shape.width, shape.feed_forward,
                shape.experts);
    AddMatrices(prefix + "ffn_down_exps", shape.feed_forward, shape.width,
                shape.experts);
  }
  void AddNorm(const std::string& name, int64_t size) {
    tensors[name + ".weight"] = {GGML_TYPE_F32, {size}, 1.0f, 0.2f};
  }
  void AddMatrix(const std::string& name, int64_t inputs, int64_t outputs) {
    tensors[name + ".weight"] = {
        matrices_, {inputs, outputs}, 0.0f, MatrixDeviation(inputs)};
  }
  void AddMatrices(const std::string& name, int64_t inputs, int64_t outputs,
                   int64_t count) {
    tensors[name + ".weight"] = {
        matrices_, {inputs, outputs, count}, 0.0f, MatrixDeviation(inputs)};
  }
  // f32 numbers, by their whole name.
  void AddNumbers(const std::string& name, std::vector<int64_t> ne, float mean,
                  float deviation) {
    tensors[name] = {GGML_TYPE_F32, std::move(ne), mean, deviation};
  }
  // For the matrix `name` that is there.
  void AddBiasOf(const std::string& name) {
    std::vector<int64_t> ne = tensors.at(name + ".weight").ne;
    ne.erase(ne.begin());
    tensors[name + ".bias"] = {GGML_TYPE_F32, ne, 0.0f, 0.3f};
  }

  // False when the file cannot be written.
  bool Write(const std::string& path) const {
    const gguf_context_ptr gguf(gguf_init_empty());
    for (const auto& [key, value] : strings) {
      gguf_set_val_str(gguf.get(), key.c_str(), value.c_str());
    }
    for (const auto& [key, value] : uints) {
      gguf_set_val_u32(gguf.get(), key.c_str(), value);
    }
    for (const auto& [key, value] : bools) {
      gguf_set_val_bool(gguf.get(), key.c_str(), value);
    }
    for (const auto& [key, value] : floats) {
      gguf_set_val_f32(gguf.get(), key.c_str(), value);
    }
    for (const auto& [key, values] : string_arrays) {
      std::vector<const char*> texts;
      for (const std::string& value : values) {
        texts.push_back(value.c_str());
      }
      gguf_set_arr_str(gguf.get(), key.c_str(), texts.data(), texts.size());
    }
    for (const auto& [key, values] : int_arrays) {
      gguf_set_arr_data(gguf.get(), key.c_str(), GGUF_TYPE_INT32, values.data(),
                        values.size());
    }
    const ggml_context_ptr context(
        ggml_init({size_t{64} << 20, nullptr, false}));
    std::mt19937 random(seed);
    for (const auto& [name, tensor] : tensors) {
      ggml_tensor* out =
          ggml_new_tensor(context.get(), tensor.type,
                          static_cast<int>(tensor.ne.size()), tensor.ne.data());
      ggml_set_name(out, name.c_str());
      Fill(tensor, random, out);
      gguf_add_tensor(gguf.get(), out);
    }
    return gguf_write_to_file(gguf.get(), path.c_str(), false);
  }

  Shape shape;
  uint32_t seed = 17;
  std::map<std::string, std::string> strings;
  std::map<std::string, uint32_t> uints;
  std::map<std::string, bool> bools;
  std::map<std::string, float> floats;
  std::map<std::string, std::vector<std::string>> string_arrays;
  std::map<std::string, std::vector<int32_t>> int_arrays;
  std::map<std::string, Tensor> tensors;

 private:
  static float MatrixDeviation(int64_t inputs) {
    return 1.5f / std::sqrt(static_cast<float>(inputs));
  }

  static void Fill(const Tensor& tensor, std::mt19937& random,
                   ggml_tensor* out) {
    std::normal_distribution<float> normal(tensor.mean, tensor.deviation);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(out)));
    for (float& value : values) {
      value = tensor.deviation > 0.0f ? normal(random) : tensor.mean;
    }
    ggml_quantize_chunk(tensor.type, values.data(), out->data, 0,
                        ggml_nrows(out), out->ne[0], nullptr);
  }

  ggml_type matrices_;
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TINY_GGUF_H_
