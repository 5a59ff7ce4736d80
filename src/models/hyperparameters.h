// Numbers of a model as its GGUF gives them, checked.
#ifndef EVERWARM_MODELS_HYPERPARAMETERS_H_
#define EVERWARM_MODELS_HYPERPARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/gguf_file.h"

namespace everwarm::models {

// Arguments of ggml_rope_ext, without the tensors.
struct RopeParameters {
  // Of each head, the first dims are rotated.
  uint32_t dims = 0;
  // GGML_ROPE_TYPE_*: which elements form pairs.
  int type = 0;
  uint32_t original_context = 0;
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;
  // YaRN; 0 for plain or linear scaling.
  float ext_factor = 0.0f;
  float attn_factor = 1.0f;
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  // The file says that it has factors for short and for long contexts.
  bool longrope = false;
};

// What a recurrent layer keeps of a sequence of any length: numbers in f32.
struct StateSize {
  uint32_t convolution = 0;  // the last inputs of a short convolution
  uint32_t recurrence = 0;   // 0: none
};

struct Hyperparameters {
  std::string architecture;
  uint32_t num_layers = 0;
  // Layers behind these that predict further tokens; they are not run.
  uint32_t num_predictors = 0;
  uint32_t embedding_dim = 0;
  // 0: not in the file, and all layers have experts.
  uint32_t ff_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t k_dim = 0;  // of one head
  uint32_t v_dim = 0;  // of one head
  uint32_t vocab_size = 0;
  uint32_t train_context = 0;
  float rms_epsilon = 0.0f;
  // What embeddings are multiplied by.
  float embedding_scale = 1.0f;
  // What a layer's parts are multiplied by before they are added.
  float residual_scale = 1.0f;
  // What logits are multiplied by, before they are capped.
  float logit_scale = 1.0f;
  // Of scores, before the softmax.
  float attention_scale = 0.0f;
  // 0: none.
  float final_logit_softcap = 0.0f;
  RopeParameters rope;

  // One per layer: it sees only so many last positions; 0: all.
  std::vector<uint32_t> windows;

  // Feed-forward networks of which each token takes a few; 0: none.
  uint32_t num_experts = 0;
  uint32_t experts_used = 0;
  uint32_t expert_ff_dim = 0;
  // What the chosen experts' weights are multiplied by.
  float expert_weights_scale = 1.0f;

  // A layer keeps one latent for keys and values: the beginning of a key is the
  // value.
  bool latent = false;

  // One per layer: true when it keeps `state` instead of keys and values.
  std::vector<bool> recurrent;
  StateSize state;

  // As ModelInfo::variant.
  std::string variant;
};

// What differs between architectures in reading the keys.
struct KeyRules {
  // GGML_ROPE_TYPE_*.
  int rope_type = 0;
  // Rope factors for short and for long contexts are read.
  bool longrope = false;
  // The architecture may have, or has, experts; else a file with some is
  // refused.
  enum class Experts { kNone, kSome, kAlways } experts = Experts::kNone;
  // Layers with 0 KV heads are recurrent.
  bool recurrent_without_kv_heads = false;
};

// What all architectures read the same way.
// Errors: kInvalidArgument, a key is missing, has another type, or is absurd;
// kUnimplemented, what no architecture here does (other rope scaling).
absl::StatusOr<Hyperparameters> ReadHyperparameters(const GgufFile& file,
                                                    const KeyRules& rules);

// Sets attention windows of a model whose layers alternate. The file may give
// one size for all layers with a window, or one for each layer.
// `period`: without another value in the file, the last of every `period`
// layers sees all positions.
absl::Status ReadWindows(const GgufFile& file, uint32_t period,
                         Hyperparameters& hyperparameters);

// How layers with a window rotate: as the others, at the frequencies' base
// that the file gives for them, or else at `freq_base`.
absl::StatusOr<RopeParameters> ReadWindowRope(
    const GgufFile& file, const Hyperparameters& hyperparameters,
    float freq_base);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_HYPERPARAMETERS_H_
