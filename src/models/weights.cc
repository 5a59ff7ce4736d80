#include "models/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/block_geometry.h"
#include "base/status_macros.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

namespace everwarm::models {
namespace {

// ggml's kernels want the start of a tensor aligned to this.
constexpr size_t kTensorAlignment = 32;

// Types whose products do not depend on the number of rows: ggml multiplies
// them block by block in one order for any batch.
bool IsRowIndependent(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q5_0:
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q8_0:
      return true;
    default:
      return false;
  }
}

// Types that ggml's CPU code multiplies with and looks rows up in.
bool IsSupported(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
    case GGML_TYPE_F16:
    case GGML_TYPE_BF16:
    case GGML_TYPE_Q4_0:
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q5_0:
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q8_0:
    case GGML_TYPE_Q2_K:
    case GGML_TYPE_Q3_K:
    case GGML_TYPE_Q4_K:
    case GGML_TYPE_Q5_K:
    case GGML_TYPE_Q6_K:
    case GGML_TYPE_IQ2_XXS:
    case GGML_TYPE_IQ2_XS:
    case GGML_TYPE_IQ2_S:
    case GGML_TYPE_IQ3_XXS:
    case GGML_TYPE_IQ3_S:
    case GGML_TYPE_IQ1_S:
    case GGML_TYPE_IQ1_M:
    case GGML_TYPE_IQ4_NL:
    case GGML_TYPE_IQ4_XS:
    case GGML_TYPE_MXFP4:
      return true;
    default:
      return false;
  }
}

// Types that run in panels of ours; docs/decisions/ has the figures.
std::optional<kernels::WeightType> PanelType(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return kernels::WeightType::kQ4_0;
    case GGML_TYPE_Q4_1:
      return kernels::WeightType::kQ4_1;
    case GGML_TYPE_Q5_0:
      return kernels::WeightType::kQ5_0;
    case GGML_TYPE_Q5_1:
      return kernels::WeightType::kQ5_1;
    case GGML_TYPE_Q8_0:
      return kernels::WeightType::kQ8_0;
    default:
      return std::nullopt;
  }
}

bool CanPack(const GgufTensor& matrix) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return kernels::LinearIsFast() && PanelType(matrix.type).has_value() &&
         matrix.ne[0] <= kMost && matrix.ne[1] <= kMost;
}

// Types whose repacked layout was measured faster for one row and for many, and
// that do not run in panels here: docs/decisions/ has the figures.
bool PrefersRepacked(ggml_type type) {
  return type == GGML_TYPE_Q4_0 || type == GGML_TYPE_IQ4_NL;
}

// The buffer type that holds `weight` in a faster layout, or null when this
// build and CPU have none for it.
ggml_backend_buffer_type_t RepackedBufferType(const ggml_tensor* weight) {
  ggml_backend_dev_t device =
      ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    return nullptr;
  }
  auto get_extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                        "ggml_backend_dev_get_extra_bufts"));
  if (get_extra == nullptr) {
    return nullptr;
  }
  const ggml_context_ptr context(
      ggml_init({3 * ggml_tensor_overhead(), nullptr, true}));
  ggml_tensor* probe = ggml_dup_tensor(context.get(), weight);
  ggml_tensor* input =
      ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, weight->ne[0], 512);
  const ggml_tensor* product = ggml_mul_mat(context.get(), probe, input);
  for (ggml_backend_buffer_type_t* type = get_extra(device);
       type != nullptr && *type != nullptr; ++type) {
    const ggml_backend_buffer_ptr buffer(
        ggml_backend_buft_alloc_buffer(*type, 0));
    probe->buffer = buffer.get();
    if (ggml_backend_dev_supports_op(device, product)) {
      return *type;
    }
  }
  return nullptr;
}

// Reads every page of the range, so that the first step does not wait for disk.
void Prefetch(const std::byte* data, size_t bytes) {
  const size_t page = 4096;
  const auto start = reinterpret_cast<uintptr_t>(data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  void* from = reinterpret_cast<void*>(start);
#ifdef MADV_POPULATE_READ
  if (madvise(from, end - start, MADV_POPULATE_READ) == 0) {
    return;
  }
#endif
  madvise(from, end - start, MADV_WILLNEED);
  for (size_t at = 0; at < bytes; at += page) {
    static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
  }
}

// Lets go of pages that were read and will not be again. They may share their
// first and last page with neighbours.
void Release(const std::byte* data, size_t bytes) {
  const size_t page = 4096;
  const size_t start = AlignUp(reinterpret_cast<uintptr_t>(data), page);
  const size_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (start < end) {
    madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);
  }
}

}  // namespace

Weights::Weights(std::unique_ptr<GgufFile> file) : file_(std::move(file)) {
  const size_t bytes = ggml_tensor_overhead() * (file_->tensors().size() + 1);
  mapped_context_.reset(ggml_init({bytes, nullptr, true}));
  copied_context_.reset(ggml_init({bytes, nullptr, true}));
  repacked_context_.reset(ggml_init({bytes, nullptr, true}));
  packed_context_.reset(ggml_init({bytes, nullptr, true}));
}

ggml_context* Weights::ContextOf(Placement placement) const {
  switch (placement) {
    case Placement::kMapped:
      return mapped_context_.get();
    case Placement::kCopied:
      return copied_context_.get();
    case Placement::kRepacked:
      return repacked_context_.get();
    case Placement::kPacked:
      return packed_context_.get();
  }
  return nullptr;
}

bool Weights::CanRepack(ggml_type type, int64_t ne0, int64_t ne1) {
  if (!PrefersRepacked(type)) {
    return false;
  }
  const ggml_context_ptr scratch(
      ggml_init({ggml_tensor_overhead(), nullptr, true}));
  ggml_backend_buffer_type_t buffer_type =
      RepackedBufferType(ggml_new_tensor_2d(scratch.get(), type, ne0, ne1));
  if (repacked_type_ == nullptr) {
    repacked_type_ = buffer_type;
  }
  return buffer_type != nullptr && buffer_type == repacked_type_;
}

absl::StatusOr<const GgufTensor*> Weights::Find(const std::string& name,
                                                const Shape& shape) const {
  const GgufTensor* source = file_->Find(name);
  if (source == nullptr) {
    return file_->Invalid(absl::StrCat("tensor '", name, "' is missing"));
  }
  if (!std::equal(shape.begin(), shape.end(), source->ne)) {
    return file_->Invalid(absl::StrCat("tensor '", name, "' has shape ",
                                       ShapeText(source->ne), ", expected ",
                                       ShapeText(shape.data())));
  }
  if (!IsSupported(source->type)) {
    return absl::UnimplementedError(absl::StrCat(
        file_->path(), ": tensor '", name, "' has type ",
        ggml_type_name(source->type), ", which does not run here"));
  }
  return source;
}

ggml_tensor* Weights::Add(const GgufTensor& source, Placement placement) {
  ggml_tensor* tensor = ggml_new_tensor(ContextOf(placement), source.type,
                                        GGML_MAX_DIMS, source.ne);
  ggml_set_name(tensor, source.name.c_str());
  if (!declared_.contains(source.name) && !packed_.contains(source.name)) {
    bytes_ += source.bytes;
  }
  entries_.push_back({tensor, &source, placement});
  return tensor;
}

absl::StatusOr<ggml_tensor*> Weights::Declare(const std::string& name,
                                              const Shape& shape,
                                              bool may_repack) {
  if (const auto found = declared_.find(name); found != declared_.end()) {
    return found->second;
  }
  EW_ASSIGN_OR_RETURN(const GgufTensor* const source, Find(name, shape));
  Placement placement = Placement::kMapped;
  if (may_repack && CanRepack(source->type, shape[0], shape[1])) {
    placement = Placement::kRepacked;
  } else if (reinterpret_cast<uintptr_t>(file_->Data(*source)) %
                 kTensorAlignment !=
             0) {
    placement = Placement::kCopied;
  }
  ggml_tensor* tensor = Add(*source, placement);
  declared_.emplace(name, tensor);
  return tensor;
}

ggml_tensor* Weights::DeclarePacked(const GgufTensor& source) {
  ggml_tensor* tensor = Add(source, Placement::kPacked);
  packed_matrices_.push_back(
      {{.type = *PanelType(source.type),
        .inputs = static_cast<uint32_t>(source.ne[0]),
        .outputs = static_cast<uint32_t>(source.ne[1])}});
  entries_.back().packed = &packed_matrices_.back();
  MarkPacked(tensor, &packed_matrices_.back());
  packed_.emplace(source.name, tensor);
  return tensor;
}

absl::StatusOr<ggml_tensor*> Weights::Matrix(const std::string& name,
                                             int64_t inputs, int64_t outputs) {
  if (const auto found = packed_.find(name); found != packed_.end()) {
    return found->second;
  }
  EW_ASSIGN_OR_RETURN(const GgufTensor* const source,
                      Find(name, {inputs, outputs, 1, 1}));
  row_independent_ = row_independent_ && IsRowIndependent(source->type);
  if (CanPack(*source)) {
    return DeclarePacked(*source);
  }
  return Declare(name, {inputs, outputs, 1, 1}, true);
}

absl::StatusOr<ggml_tensor*> Weights::Table(const std::string& name,
                                            int64_t columns, int64_t rows) {
  return Declare(name, {columns, rows, 1, 1}, false);
}

absl::StatusOr<ggml_tensor*> Weights::Experts(const std::string& name,
                                              int64_t inputs, int64_t outputs,
                                              int64_t count) {
  return Declare(name, {inputs, outputs, count, 1}, false);
}

absl::Status Weights::CheckF32(const std::string& name) const {
  const GgufTensor* source = file_->Find(name);
  if (source != nullptr && source->type != GGML_TYPE_F32) {
    return absl::UnimplementedError(
        absl::StrCat(file_->path(), ": tensor '", name, "' has type ",
                     ggml_type_name(source->type), ", expected f32"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ggml_tensor*> Weights::Vectors(const std::string& name,
                                              int64_t size, int64_t count) {
  EW_RETURN_IF_ERROR(CheckF32(name));
  return Declare(name, {size, count, 1, 1}, false);
}

absl::StatusOr<ggml_tensor*> Weights::Vector(const std::string& name,
                                             int64_t size) {
  EW_RETURN_IF_ERROR(CheckF32(name));
  return Declare(name, {size, 1, 1, 1}, false);
}

absl::StatusOr<ggml_tensor*> Weights::OptionalVector(const std::string& name,
                                                     int64_t size) {
  if (!Has(name)) {
    return nullptr;
  }
  return Vector(name, size);
}

absl::Status Weights::CheckNoneLeft() const {
  for (const GgufTensor& tensor : file_->tensors()) {
    if (std::any_of(ignored_.begin(), ignored_.end(),
                    [&](const std::string& prefix) {
                      return absl::StartsWith(tensor.name, prefix);
                    })) {
      continue;
    }
    // Tables that old converters wrote and nothing reads.
    if (declared_.contains(tensor.name) || packed_.contains(tensor.name) ||
        absl::EndsWith(tensor.name, "attn_rot_embd.weight") ||
        absl::EndsWith(tensor.name, "rope_freqs.weight") ||
        absl::EndsWith(tensor.name, "rotary_emb.inv_freq")) {
      continue;
    }
    return absl::UnimplementedError(
        absl::StrCat(file_->path(), ": tensor '", tensor.name,
                     "' is not part of this architecture as it runs here"));
  }
  return absl::OkStatus();
}

absl::Status Weights::Allocate() {
  const auto first = [](ggml_context* context) {
    return ggml_get_first_tensor(context);
  };
  if (first(copied_context_.get()) != nullptr) {
    copied_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        copied_context_.get(), ggml_backend_cpu_buffer_type()));
    if (copied_buffer_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(file_->path(), ": no memory for copied weights"));
    }
  }
  if (first(repacked_context_.get()) != nullptr) {
    repacked_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        repacked_context_.get(), repacked_type_));
    if (repacked_buffer_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(file_->path(), ": no memory for repacked weights"));
    }
  }
  // From the page that holds the first mapped tensor to the end of the last.
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.placement == Placement::kMapped) {
      const std::byte* data = file_->Data(*entry.source);
      begin = begin == nullptr ? data : std::min(begin, data);
      end = std::max(end, data + entry.source->bytes);
    }
  }
  if (begin != nullptr) {
    mapped_buffer_.reset(ggml_backend_cpu_buffer_from_ptr(
        const_cast<std::byte*>(begin), static_cast<size_t>(end - begin)));
  }
  return absl::OkStatus();
}

absl::Status Weights::AllocatePacked() {
  size_t bytes = 0;
  for (const PackedMatrix& matrix : packed_matrices_) {
    bytes += kernels::PackedBytes(matrix.shape);
  }
  if (bytes == 0) {
    return absl::OkStatus();
  }
  packed_memory_ = HugeMemory::Map(bytes);
  if (!packed_memory_.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        file_->path(), ": no memory for ", bytes, " bytes of packed weights"));
  }
  std::byte* at = packed_memory_->data();
  for (PackedMatrix& matrix : packed_matrices_) {
    matrix.panels = at;
    at += kernels::PackedBytes(matrix.shape);
  }
  return absl::OkStatus();
}

absl::Status Weights::Map(const Entry& entry) const {
  const std::byte* data = file_->Data(*entry.source);
  if (ggml_backend_tensor_alloc(mapped_buffer_.get(), entry.tensor,
                                const_cast<std::byte*>(data)) !=
      GGML_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat(file_->path(), ": tensor '", entry.source->name,
                     "' cannot be placed in the mapping"));
  }
  // Of a table that is also multiplied with, in panels, a few rows are read.
  if (!packed_.contains(entry.source->name)) {
    Prefetch(data, entry.source->bytes);
  }
  return absl::OkStatus();
}

absl::Status Weights::Load(const std::function<void(float)>& progress) {
  EW_RETURN_IF_ERROR(CheckNoneLeft());
  EW_RETURN_IF_ERROR(Allocate());
  EW_RETURN_IF_ERROR(AllocatePacked());
  uint64_t done = 0;
  for (const Entry& entry : entries_) {
    const std::byte* data = file_->Data(*entry.source);
    const size_t bytes = entry.source->bytes;
    switch (entry.placement) {
      case Placement::kMapped:
        EW_RETURN_IF_ERROR(Map(entry));
        break;
      case Placement::kCopied:
      case Placement::kRepacked:
        ggml_backend_tensor_set(entry.tensor, data, 0, bytes);
        break;
      case Placement::kPacked:
        Prefetch(data, bytes);
        kernels::PackMatrix(entry.packed->shape, data,
                            const_cast<std::byte*>(entry.packed->panels));
        Release(data, bytes);
        break;
    }
    done += bytes;
    if (progress) {
      progress(std::min(1.0f, static_cast<float>(static_cast<double>(done) /
                                                 static_cast<double>(bytes_))));
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::models
