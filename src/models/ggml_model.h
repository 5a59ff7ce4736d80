// The one Model there is: any architecture, computed by ggml.
#ifndef EVERWARM_MODELS_GGML_MODEL_H_
#define EVERWARM_MODELS_GGML_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ggml-cpu.h"
#include "models/architecture.h"
#include "models/model.h"
#include "models/step_graph.h"
#include "models/step_state.h"
#include "models/weights.h"

namespace everwarm::models {

struct ThreadPoolDeleter {
  void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};
using ThreadPoolPtr = std::unique_ptr<ggml_threadpool, ThreadPoolDeleter>;

// Threads: as Model.
class GgmlModel final : public Model {
 public:
  // `weights` are loaded; `architecture` was made from them.
  // Errors: kResourceExhausted, no threads.
  static absl::StatusOr<std::unique_ptr<GgmlModel>> Make(
      std::unique_ptr<Weights> weights,
      std::unique_ptr<Architecture> architecture, const LoadOptions& options);

  const ModelInfo& info() const override { return info_; }
  const std::vector<ModelGroup>& groups() const override { return groups_; }
  absl::StatusOr<absl::Span<const float>> Step(const StepInput& input) override;

 private:
  GgmlModel(std::unique_ptr<Weights> weights,
            std::unique_ptr<Architecture> architecture,
            const LoadOptions& options);
  void FillInputs(const StepInput& input, const GraphInputs& inputs) const;

  const std::unique_ptr<Weights> weights_;
  const std::unique_ptr<Architecture> architecture_;
  const uint32_t num_threads_;
  ModelInfo info_;
  std::vector<ModelGroup> groups_;
  StepState state_;
  StepGraphCache graphs_;
  ThreadPoolPtr pool_;
  // Scratch memory of the running step; grows to the largest graph's need.
  std::vector<uint8_t> work_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_GGML_MODEL_H_
