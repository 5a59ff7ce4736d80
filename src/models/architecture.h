// A model architecture: which tensors it has and how its graph is built. One
// file each, over the parts in graph_builder.h.
#ifndef EVERWARM_MODELS_ARCHITECTURE_H_
#define EVERWARM_MODELS_ARCHITECTURE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ggml.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/model.h"
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

// Reads the file's keys and declares its tensors; `weights` outlives the
// result.
// Errors: as ReadHyperparameters() and Weights.
using MakeArchitecture = absl::StatusOr<std::unique_ptr<Architecture>>(
    Weights& weights, const LoadOptions& options);

MakeArchitecture MakeDeepSeek2;
MakeArchitecture MakeGemma3;
MakeArchitecture MakeGptOss;
MakeArchitecture MakeGraniteHybrid;
MakeArchitecture MakeLfm2;
MakeArchitecture MakeLlama;
MakeArchitecture MakePhi3;
MakeArchitecture MakeQwen2;
MakeArchitecture MakeQwen3;
MakeArchitecture MakeQwen35;
MakeArchitecture MakeQwen3Moe;
MakeArchitecture MakeSmolLm3;

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_ARCHITECTURE_H_
