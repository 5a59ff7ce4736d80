#include "testing/f32_gguf.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ggml.h"
#include "gguf.h"

namespace everwarm {
namespace {

struct Free {
  void operator()(gguf_context* file) const { gguf_free(file); }
  void operator()(ggml_context* tensors) const { ggml_free(tensors); }
};
using File = std::unique_ptr<gguf_context, Free>;
using Tensors = std::unique_ptr<ggml_context, Free>;

absl::Status ToFloats(const ggml_tensor& from, ggml_tensor& to) {
  if (from.type == GGML_TYPE_F32) {
    std::memcpy(to.data, from.data, ggml_nbytes(&from));
    return absl::OkStatus();
  }
  const auto convert = ggml_get_type_traits(from.type)->to_float;
  if (convert == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        from.name, ": ", ggml_type_name(from.type), " has no f32 form"));
  }
  convert(from.data, static_cast<float*>(to.data), ggml_nelements(&from));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteF32Gguf(const std::string& from, const std::string& to) {
  ggml_context* read = nullptr;
  const File source(
      gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &read}));
  const Tensors tensors(read);
  if (source == nullptr) {
    return absl::NotFoundError(absl::StrCat(from, ": not a model file"));
  }
  size_t bytes = 0;
  for (ggml_tensor* tensor = ggml_get_first_tensor(read); tensor != nullptr;
       tensor = ggml_get_next_tensor(read, tensor)) {
    bytes += ggml_nelements(tensor) * sizeof(float) + ggml_tensor_overhead() +
             GGML_MEM_ALIGN;
  }
  const Tensors floats(ggml_init({bytes, nullptr, false}));
  const File file(gguf_init_empty());
  gguf_set_kv(file.get(), source.get());
  gguf_set_val_u32(file.get(), "general.file_type", 0);
  const int64_t count = gguf_get_n_tensors(source.get());
  for (int64_t i = 0; i < count; ++i) {
    const char* name = gguf_get_tensor_name(source.get(), i);
    const ggml_tensor* tensor = ggml_get_tensor(read, name);
    ggml_tensor* converted =
        ggml_new_tensor(floats.get(), GGML_TYPE_F32, GGML_MAX_DIMS, tensor->ne);
    ggml_set_name(converted, name);
    if (absl::Status status = ToFloats(*tensor, *converted); !status.ok()) {
      return status;
    }
    gguf_add_tensor(file.get(), converted);
  }
  if (!gguf_write_to_file(file.get(), to.c_str(), false)) {
    return absl::InternalError(absl::StrCat(to, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace everwarm
