#include "models/tensor_scope.h"

namespace everwarm::models {

ggml_tensor* TensorScope::Take(absl::StatusOr<ggml_tensor*> tensor) {
  if (tensor.ok()) {
    return *tensor;
  }
  if (status_.ok()) {
    status_ = tensor.status();
  }
  return nullptr;
}

ggml_tensor* TensorScope::Vector(const std::string& name, int64_t size) {
  return Take(weights_.Vector(prefix_ + name + ".weight", size));
}

ggml_tensor* TensorScope::Numbers(const std::string& name, int64_t size,
                                  int64_t count) {
  return Take(weights_.Vectors(prefix_ + name, size, count));
}

LinearWeights TensorScope::Linear(const std::string& name, int64_t inputs,
                                  int64_t outputs) {
  LinearWeights linear;
  linear.matrix =
      Take(weights_.Matrix(prefix_ + name + ".weight", inputs, outputs));
  if (HasBias(name)) {
    linear.bias = Take(weights_.Vector(prefix_ + name + ".bias", outputs));
  }
  return linear;
}

LinearWeights TensorScope::Experts(const std::string& name, int64_t inputs,
                                   int64_t outputs, int64_t count) {
  LinearWeights experts;
  experts.matrix = Take(
      weights_.Experts(prefix_ + name + ".weight", inputs, outputs, count));
  if (HasBias(name)) {
    experts.bias =
        Take(weights_.Vectors(prefix_ + name + ".bias", outputs, count));
  }
  return experts;
}

}  // namespace everwarm::models
