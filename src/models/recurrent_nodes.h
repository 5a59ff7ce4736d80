// Recurrent layers (kernels/recurrent.h) as nodes of a ggml graph. What changes
// from step to step, whose rows go on in which state, is in RecurrentStep.
//
// Sources may be views: rows may lie apart, what belongs to one row may not.
// Results are contiguous.
#ifndef EVERWARM_MODELS_RECURRENT_NODES_H_
#define EVERWARM_MODELS_RECURRENT_NODES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ggml.h"
#include "kernels/recurrent.h"
#include "models/model.h"

namespace everwarm::models {

// The sequences of the running step and their live states. Keeps its memory
// between steps.
//
// Threads: Prepare() while no graph is computed.
class RecurrentStep {
 public:
  // `group` is the recurrent group's index.
  void Prepare(const StepInput& input, uint32_t group);
  absl::Span<const kernels::SequenceRows> sequences() const {
    return sequences_;
  }

 private:
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<uint32_t> rows_;   // by sequence, then position
  std::vector<uint32_t> first_;  // of each sequence of the input in rows_
};

// What a node reads; lives as long as the graph.
struct RecurrentNode {
  const RecurrentStep* step = nullptr;
  size_t state_offset = 0;  // of the layer's plane in a slot, bytes
};

struct ShortConvSources {
  ggml_tensor* in = nullptr;       // [rows, channels]
  ggml_tensor* weights = nullptr;  // [channels, taps]
  ggml_tensor* bias = nullptr;     // [channels], or null
};
// Shapes: result [rows, channels].
ggml_tensor* AddShortConv(ggml_context* context, RecurrentNode* node,
                          const ShortConvSources& sources);

struct ScanSources {
  ggml_tensor* x = nullptr;      // [rows, heads, head_dim]
  ggml_tensor* dt = nullptr;     // [rows, heads]
  ggml_tensor* decay = nullptr;  // [rows, heads]
  ggml_tensor* b = nullptr;      // [rows, groups, state_dim]
  ggml_tensor* c = nullptr;      // [rows, groups, state_dim]
  ggml_tensor* skip = nullptr;   // [heads]
};
// Shapes: result [rows, heads * head_dim].
ggml_tensor* AddScan(ggml_context* context, RecurrentNode* node,
                     const ScanSources& sources);

struct DeltaRuleSources {
  ggml_tensor* q = nullptr;      // [rows, key_heads, key_dim]
  ggml_tensor* k = nullptr;      // [rows, key_heads, key_dim]
  ggml_tensor* v = nullptr;      // [rows, heads, value_dim]
  ggml_tensor* decay = nullptr;  // [rows, heads]
  ggml_tensor* beta = nullptr;   // [rows, heads]
};
// Shapes: result [rows, heads * value_dim].
ggml_tensor* AddDeltaRule(ggml_context* context, RecurrentNode* node,
                          const DeltaRuleSources& sources);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_RECURRENT_NODES_H_
