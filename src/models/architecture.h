// A model architecture: which tensors it has and how its graph is built. One
// file each, over the parts in graph_builder.h.
#ifndef EVERWARM_MODELS_ARCHITECTURE_H_
#define EVERWARM_MODELS_ARCHITECTURE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ggml.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/weights.h"

namespace everwarm::models {

// Threads: immutable, any.
class Architecture {
 public:
  virtual ~Architecture() = default;
  virtual const Hyperparameters& hyperparameters() const = 0;
  // Adds a step: all rows go through all layers, those that want logits also
  // through the head. Returns [wanted, vocab_size], or null when no row wants.
  virtual ggml_tensor* Build(GraphBuilder& graph) const = 0;
};

// Read the file's keys and declare its tensors; `weights` outlives the result.
// Errors: as ReadHyperparameters() and Weights.
absl::StatusOr<std::unique_ptr<Architecture>> MakeLlama(Weights& weights);
absl::StatusOr<std::unique_ptr<Architecture>> MakeGemma3(Weights& weights);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_ARCHITECTURE_H_
