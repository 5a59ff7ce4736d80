// A GGUF model that computes over block tables.
//
// Weights come through ggml, quantised as they are in the file; attention is
// ours (kernels/attention.h). The model owns no KV: the caller hands block
// tables in.
//
// Threads:  Step() from one thread at a time; it uses the model's own thread
// pool. Errors:   Load(): kNotFound or kInvalidArgument with the file's name
// and what is
//           wrong; kUnimplemented names an architecture we do not run.
// Not here: tokens as text (models/vocabulary.h), sampling, who gets which
// block.
#ifndef EVERWARM_MODELS_MODEL_H_
#define EVERWARM_MODELS_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "base/by_span.h"
#include "base/ids.h"
#include "kernels/attention.h"
#include "models/file_stamp.h"
#include "models/kv_scheme.h"

namespace everwarm::models {

// Layers of the model with the same kind of state, the same retention and the
// same codec.
struct ModelGroup {
  // "full", "latent", "window", "recurrent"; "window512" where windows have
  // several sizes; with the codec (of the rest, if the first tokens have their
  // own) behind a dot where a kind has several.
  std::string name;
  // 0: a full, latent or recurrent group. Keys of a latent group hold the
  // values too (kernels::AttentionShape::v_in_k).
  uint32_t window = 0;
  // The layers keep a state of one size, whatever the position, instead of keys
  // and values. Its geometry has block_tokens 1, and one token is the whole
  // state, in f32: [layer][plane], the plane 0 of the last inputs of a
  // convolution, plane 1, where there is one, of the recurrence.
  bool recurrent = false;
  // Equal first spans. Groups with a window, and recurrent ones, have none.
  BySpan<LayerScheme> scheme;
  BySpan<BlockGeometry> geometry;
  std::vector<uint32_t> layers;  // indices in the model, in slot order
};

struct ModelInfo {
  std::string path;
  FileStamp stamp;           // of the file that the weights are of
  std::string name;          // general.name, or the file's name
  std::string architecture;  // general.architecture
  uint32_t num_layers = 0;
  uint32_t embedding_dim = 0;
  uint32_t vocab_size = 0;
  // Context the model was trained for; longer prompts are the caller's risk.
  uint32_t train_context = 0;
  uint64_t weight_bytes = 0;
  // Every weight matrix gives a row the same bits whatever else is in the batch
  // (contract (b) of the design). False for K-quants, f16 and f32 weights;
  // experts and their routers are row-independent in every type.
  bool row_independent = false;
  // What the file has in several variants and LoadOptions chose one of; keys
  // and values of another are others. Empty: there is nothing to choose.
  std::string variant;
};

struct StepRow {
  TokenId token = 0;
  TokenPos position = 0;
  // Index into StepInput::sequences.
  uint32_t sequence = 0;
  bool wants_logits = false;
};

// Block tables of one sequence: for each group the slot addresses by span
// index. Slots for the rows' positions must be there already.
//
// A recurrent group's table is one address: the sequence's live state, at the
// position of its first row, all zero at position 0. It belongs to this
// sequence alone; a step goes on in it, row by row.
struct StepSequence {
  std::vector<absl::Span<std::byte* const>> groups;
};

struct StepInput {
  // Rows of one sequence are in ascending, consecutive positions.
  absl::Span<const StepRow> rows;
  absl::Span<const StepSequence> sequences;
};

struct LoadOptions {
  uint32_t block_tokens = 64;
  uint32_t num_threads = 1;
  // CPUs for the threads that compute, one each in this order; at least as many
  // as threads. Empty: the system puts them where it likes.
  std::vector<uint32_t> cpus;
  // Longest sequence that will be computed: chooses among rope factors for
  // short and for long contexts. 0: the context that the model was trained for.
  uint32_t context = 0;
  KvScheme kv;
  // Called from Load() with a fraction from 0 to 1; may be empty.
  std::function<void(float)> progress;
};

class Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Load(
      const std::string& path, const LoadOptions& options);
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const std::vector<ModelGroup>& groups() const = 0;

  // Computes the rows: writes their KV into the blocks and gives the logits of
  // those that want them, in row order: [wanting rows, vocab_size]. The span is
  // valid until the next call.
  // Errors: kInvalidArgument, the input is not as above, and
  // kResourceExhausted, no memory for it: nothing has been touched. kInternal
  // when ggml fails; the blocks' new positions and recurrent states are
  // unspecified.
  virtual absl::StatusOr<absl::Span<const float>> Step(
      const StepInput& input) = 0;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_MODEL_H_
