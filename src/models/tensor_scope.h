// Declaring the tensors of one layer, name by name.
#ifndef EVERWARM_MODELS_TENSOR_SCOPE_H_
#define EVERWARM_MODELS_TENSOR_SCOPE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ggml.h"
#include "models/weights.h"

namespace everwarm::models {

// Names are given without their prefix ("blk.3.") and without ".weight" or
// ".bias". Keeps the first error; what is declared afterwards is null.
//
// Threads: one.
class TensorScope {
 public:
  // `weights` outlives the scope.
  TensorScope(Weights& weights, std::string prefix)
      : weights_(weights), prefix_(std::move(prefix)) {}

  // From now on a matrix without a bias is an error.
  void RequireBiases() { biases_required_ = true; }

  // f32 numbers that activations are multiplied with, such as a norm's.
  ggml_tensor* Vector(const std::string& name, int64_t size);
  // f32 numbers, [count, size], by a name that is whole but for its prefix.
  ggml_tensor* Numbers(const std::string& name, int64_t size,
                       int64_t count = 1);
  // A matrix, with a bias if the file has one.
  LinearWeights Linear(const std::string& name, int64_t inputs,
                       int64_t outputs);
  // The same for `count` experts, and for a router as one of one.
  LinearWeights Experts(const std::string& name, int64_t inputs,
                        int64_t outputs, int64_t count);
  // `name` with its ".weight" or ".bias".
  bool Has(const std::string& name) const {
    return weights_.Has(prefix_ + name);
  }

  // The first error, as Weights gives it.
  const absl::Status& status() const { return status_; }

 private:
  ggml_tensor* Take(absl::StatusOr<ggml_tensor*> tensor);
  // `name` has a bias, or must have one.
  bool HasBias(const std::string& name) const {
    return biases_required_ || Has(name + ".bias");
  }

  Weights& weights_;
  const std::string prefix_;
  bool biases_required_ = false;
  absl::Status status_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_TENSOR_SCOPE_H_
