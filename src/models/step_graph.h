// Graphs of a model by their shape, built once and computed many times.
#ifndef EVERWARM_MODELS_STEP_GRAPH_H_
#define EVERWARM_MODELS_STEP_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "models/architecture.h"
#include "models/graph_builder.h"
#include "models/step_state.h"

namespace everwarm::models {

// What a graph depends on.
struct StepShape {
  uint32_t rows = 0;
  uint32_t wanted = 0;  // rows that want logits
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

// A graph with memory of its own for all its activations.
class StepGraph {
 public:
  // Errors: kResourceExhausted, no memory for the activations.
  static absl::StatusOr<std::unique_ptr<StepGraph>> Build(
      const Architecture& architecture, StepState& state,
      const StepShape& shape);

  const StepShape& shape() const { return shape_; }
  const GraphInputs& inputs() const { return inputs_; }
  ggml_cgraph* graph() const { return graph_; }
  // Null when no row wants logits.
  const ggml_tensor* logits() const { return logits_; }
  // Bytes of the activations.
  size_t bytes() const;

 private:
  explicit StepGraph(const StepShape& shape) : shape_(shape) {}

  const StepShape shape_;
  ggml_context_ptr context_;
  ggml_gallocr_ptr allocator_;
  GraphNodes nodes_;
  ggml_cgraph* graph_ = nullptr;
  GraphInputs inputs_;
  ggml_tensor* logits_ = nullptr;
};

// The graphs used last.
//
// Threads: one.
class StepGraphCache {
 public:
  StepGraphCache(const Architecture& architecture, StepState& state)
      : architecture_(architecture), state_(state) {}

  // The graph of a shape; it stays valid until the next call.
  // Errors: as StepGraph::Build().
  absl::StatusOr<StepGraph*> Get(const StepShape& shape);

 private:
  const Architecture& architecture_;
  StepState& state_;
  // Most recently used first.
  std::list<std::unique_ptr<StepGraph>> graphs_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_STEP_GRAPH_H_
