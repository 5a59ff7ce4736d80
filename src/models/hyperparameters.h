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
};

// What a recurrent layer keeps of a sequence of any length: numbers in f32.
struct StateSize {
  uint32_t convolution = 0;  // the last inputs of a short convolution
  uint32_t recurrence = 0;   // 0: none
};

struct Hyperparameters {
  std::string architecture;
  uint32_t num_layers = 0;
  uint32_t embedding_dim = 0;
  uint32_t ff_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t k_dim = 0;  // of one head
  uint32_t v_dim = 0;  // of one head
  uint32_t vocab_size = 0;
  uint32_t train_context = 0;
  float rms_epsilon = 0.0f;
  // Of scores, before the softmax.
  float attention_scale = 0.0f;
  // 0: none.
  float final_logit_softcap = 0.0f;
  RopeParameters rope;

  // 0: every layer sees all positions.
  uint32_t window = 0;
  // One per layer: true when it sees only the last `window` positions.
  std::vector<bool> windowed;
  RopeParameters window_rope;

  // One per layer: true when it keeps `state` instead of keys and values.
  std::vector<bool> recurrent;
  StateSize state;
};

// What all architectures read the same way. `rope_type` is GGML_ROPE_TYPE_*.
// Errors: kInvalidArgument, a key is missing, has another type, or is absurd;
// kUnimplemented, what no architecture here does (experts, other rope scaling).
absl::StatusOr<Hyperparameters> ReadHyperparameters(const GgufFile& file,
                                                    int rope_type);

// Sets attention windows of a model whose layers alternate.
// `period`: without another value in the file, the last of every `period`
// layers sees all positions.
absl::Status ReadWindows(const GgufFile& file, uint32_t period,
                         Hyperparameters& hyperparameters);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_HYPERPARAMETERS_H_
