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
  static constexpr uint32_t kWidth = 64;
  static constexpr uint32_t kFeedForward = 96;
  static constexpr uint32_t kHeads = 4;
  static constexpr uint32_t kKvHeads = 2;
  static constexpr uint32_t kHeadDim = 32;

  struct Tensor {
    ggml_type type = GGML_TYPE_F32;
    std::vector<int64_t> ne;  // innermost first
    // Values are `mean` and, scaled, a normal deviation.
    float mean = 0.0f;
    float deviation = 0.0f;
  };

  static TinyGguf Llama(uint32_t layers = 2,
                        ggml_type matrices = GGML_TYPE_F32) {
    TinyGguf tiny("llama", layers, matrices);
    for (uint32_t i = 0; i < layers; ++i) {
      tiny.AddLayer(absl::StrCat("blk.", i, "."));
    }
    return tiny;
  }

  static TinyGguf Gemma3(uint32_t layers = 3,
                         ggml_type matrices = GGML_TYPE_F32) {
    TinyGguf tiny("gemma3", layers, matrices);
    tiny.uints["gemma3.attention.sliding_window"] = 16;
    tiny.uints["gemma3.attention.sliding_window_pattern"] = 3;
    for (uint32_t i = 0; i < layers; ++i) {
      const std::string prefix = absl::StrCat("blk.", i, ".");
      tiny.AddLayer(prefix);
      tiny.AddNorm(prefix + "attn_q_norm", kHeadDim);
      tiny.AddNorm(prefix + "attn_k_norm", kHeadDim);
      tiny.AddNorm(prefix + "post_attention_norm", kWidth);
      tiny.AddNorm(prefix + "post_ffw_norm", kWidth);
    }
    return tiny;
  }

  void AddNorm(const std::string& name, int64_t size) {
    tensors[name + ".weight"] = {GGML_TYPE_F32, {size}, 1.0f, 0.2f};
  }
  void AddBias(const std::string& name, int64_t size) {
    tensors[name + ".bias"] = {GGML_TYPE_F32, {size}, 0.0f, 0.3f};
  }
  void AddMatrix(const std::string& name, int64_t inputs, int64_t outputs) {
    tensors[name + ".weight"] = {matrices_,
                                 {inputs, outputs},
                                 0.0f,
                                 1.5f / std::sqrt(static_cast<float>(inputs))};
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
    std::mt19937 random(17);
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

  std::map<std::string, std::string> strings;
  std::map<std::string, uint32_t> uints;
  std::map<std::string, float> floats;
  std::map<std::string, std::vector<std::string>> string_arrays;
  std::map<std::string, std::vector<int32_t>> int_arrays;
  std::map<std::string, Tensor> tensors;

 private:
  TinyGguf(const std::string& architecture, uint32_t layers, ggml_type matrices)
      : matrices_(matrices) {
    const std::string prefix = architecture + ".";
    strings["general.architecture"] = architecture;
    strings["general.name"] = "tiny";
    strings["tokenizer.ggml.model"] = "no_vocab";
    uints[prefix + "vocab_size"] = kVocabulary;
    uints[prefix + "block_count"] = layers;
    uints[prefix + "context_length"] = 2048;
    uints[prefix + "embedding_length"] = kWidth;
    uints[prefix + "feed_forward_length"] = kFeedForward;
    uints[prefix + "attention.head_count"] = kHeads;
    uints[prefix + "attention.head_count_kv"] = kKvHeads;
    uints[prefix + "attention.key_length"] = kHeadDim;
    uints[prefix + "attention.value_length"] = kHeadDim;
    uints[prefix + "rope.dimension_count"] = kHeadDim;
    floats[prefix + "attention.layer_norm_rms_epsilon"] = 1e-5f;
    tensors["token_embd.weight"] = {
        matrices, {kWidth, kVocabulary}, 0.0f, 1.0f};
    AddNorm("output_norm", kWidth);
  }

  void AddLayer(const std::string& prefix) {
    AddNorm(prefix + "attn_norm", kWidth);
    AddMatrix(prefix + "attn_q", kWidth, kHeads * kHeadDim);
    AddMatrix(prefix + "attn_k", kWidth, kKvHeads * kHeadDim);
    AddMatrix(prefix + "attn_v", kWidth, kKvHeads * kHeadDim);
    AddMatrix(prefix + "attn_output", kHeads * kHeadDim, kWidth);
    AddNorm(prefix + "ffn_norm", kWidth);
    AddMatrix(prefix + "ffn_gate", kWidth, kFeedForward);
    AddMatrix(prefix + "ffn_up", kWidth, kFeedForward);
    AddMatrix(prefix + "ffn_down", kFeedForward, kWidth);
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
