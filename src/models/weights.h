// The weights of a model as ggml tensors, where ggml computes with them
// fastest.
//
// An architecture declares the tensors that it needs; each is checked against
// the file. Load() then puts every one in its place: some stay in the file's
// mapping, matrices of most types are copied into a faster layout, ours or
// ggml's. What was copied is read from the file once and then left alone, so
// that memory holds it once.
//
// Threads: one, until Load() has returned; immutable afterwards.
#ifndef EVERWARM_MODELS_WEIGHTS_H_
#define EVERWARM_MODELS_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/huge_memory.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "models/gguf_file.h"
#include "models/linear_nodes.h"

namespace everwarm::models {

// A matrix and what is added to its products; no bias: nothing is.
struct LinearWeights {
  ggml_tensor* matrix = nullptr;
  ggml_tensor* bias = nullptr;
};

class Weights {
 public:
  explicit Weights(std::unique_ptr<GgufFile> file);
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const GgufFile& file() const { return *file_; }

  // A matrix that activations are multiplied with: [outputs, inputs]. Only
  // GraphBuilder::Linear() knows how: it may be PackedOf(), without data.
  // Errors of this and the next: kInvalidArgument, the tensor is missing or has
  // another shape; kUnimplemented, a type that we do not run.
  absl::StatusOr<ggml_tensor*> Matrix(const std::string& name, int64_t inputs,
                                      int64_t outputs);
  // A matrix that rows are looked up in: [rows, columns]. Never repacked.
  absl::StatusOr<ggml_tensor*> Table(const std::string& name, int64_t columns,
                                     int64_t rows);
  // Matrices that ggml_mul_mat_id() picks from: [count, outputs, inputs]. It
  // multiplies row by row, so that a row's bits depend on nothing else,
  // whatever the type. Never repacked.
  absl::StatusOr<ggml_tensor*> Experts(const std::string& name, int64_t inputs,
                                       int64_t outputs, int64_t count);
  // f32 numbers: [count, size].
  absl::StatusOr<ggml_tensor*> Vectors(const std::string& name, int64_t size,
                                       int64_t count);
  // f32 numbers: norms, biases, rope factors.
  absl::StatusOr<ggml_tensor*> Vector(const std::string& name, int64_t size);
  // The same, or null when the file has none.
  absl::StatusOr<ggml_tensor*> OptionalVector(const std::string& name,
                                              int64_t size);
  bool Has(const std::string& name) const {
    return file_->Find(name) != nullptr;
  }

  // The file may have tensors whose names begin so; they are not needed.
  void Ignore(const std::string& prefix) { ignored_.push_back(prefix); }

  // Gives every declared tensor its data, reading the file through once.
  // `progress` gets fractions from 0 to 1 and may be empty.
  // Errors: kUnimplemented, the file has tensors that nobody declared (a
  // variant of the architecture); kResourceExhausted, no memory for repacked
  // weights.
  absl::Status Load(const std::function<void(float)>& progress);

  // Bytes of all declared tensors.
  uint64_t bytes() const { return bytes_; }
  // Every matrix gives a row the same bits whatever else is in the batch.
  bool row_independent() const { return row_independent_; }

 private:
  enum class Placement {
    kMapped,    // stays in the file's mapping
    kCopied,    // the same bytes in memory of ours, where ggml needs alignment
    kRepacked,  // in ggml's layout for its fastest kernels
    kPacked,    // in panels, kernels/linear.h
  };
  // A declared tensor and where its bytes are in the file.
  struct Entry {
    ggml_tensor* tensor;
    const GgufTensor* source;
    Placement placement;
    PackedMatrix* packed = nullptr;
  };

  // Innermost first, as in the file; 1 beyond a tensor's dimensions.
  using Shape = std::array<int64_t, GGML_MAX_DIMS>;
  // The file's tensor of that name, with that shape and a type that runs.
  absl::StatusOr<const GgufTensor*> Find(const std::string& name,
                                         const Shape& shape) const;
  absl::StatusOr<ggml_tensor*> Declare(const std::string& name,
                                       const Shape& shape, bool may_repack);
  ggml_tensor* DeclarePacked(const GgufTensor& source);
  ggml_tensor* Add(const GgufTensor& source, Placement placement);
  absl::Status CheckF32(const std::string& name) const;
  ggml_context* ContextOf(Placement placement) const;
  // True when ggml has a faster layout for it, in the buffer type that all
  // repacked weights of this model share.
  bool CanRepack(ggml_type type, int64_t ne0, int64_t ne1);
  absl::Status CheckNoneLeft() const;
  absl::Status Allocate();
  absl::Status Map(const Entry& entry) const;
  absl::Status AllocatePacked();

  std::unique_ptr<GgufFile> file_;
  // One context per placement, because ggml allocates by context.
  ggml_context_ptr mapped_context_;
  ggml_context_ptr copied_context_;
  ggml_context_ptr repacked_context_;
  ggml_context_ptr packed_context_;
  ggml_backend_buffer_ptr mapped_buffer_;
  ggml_backend_buffer_ptr copied_buffer_;
  ggml_backend_buffer_ptr repacked_buffer_;
  ggml_backend_buffer_type_t repacked_type_ = nullptr;
  std::optional<HugeMemory> packed_memory_;
  std::deque<PackedMatrix> packed_matrices_;
  std::vector<Entry> entries_;
  // By name. A matrix in panels is one more tensor than the table that rows are
  // looked up in, where a model has both in one.
  absl::flat_hash_map<std::string, ggml_tensor*> declared_;
  absl::flat_hash_map<std::string, ggml_tensor*> packed_;
  std::vector<std::string> ignored_;
  uint64_t bytes_ = 0;
  bool row_independent_ = true;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_WEIGHTS_H_
