#include "models/gguf_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "models/quiet_log.h"

namespace everwarm::models {
namespace {

// Closes on every path out of Map(); the mapping outlives the descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// The integer or boolean at `at`, or nothing for other types and negatives.
std::optional<uint64_t> IntegerAt(gguf_type type, const void* at) {
  const auto read = [at]<typename T>(T value) -> std::optional<uint64_t> {
    std::memcpy(&value, at, sizeof(value));
    if (std::is_signed_v<T> && value < T{0}) {
      return std::nullopt;
    }
    return static_cast<uint64_t>(value);
  };
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_BOOL:
      return read(uint8_t{});
    case GGUF_TYPE_INT8:
      return read(int8_t{});
    case GGUF_TYPE_UINT16:
      return read(uint16_t{});
    case GGUF_TYPE_INT16:
      return read(int16_t{});
    case GGUF_TYPE_UINT32:
      return read(uint32_t{});
    case GGUF_TYPE_INT32:
      return read(int32_t{});
    case GGUF_TYPE_UINT64:
      return read(uint64_t{});
    case GGUF_TYPE_INT64:
      return read(int64_t{});
    default:
      return std::nullopt;
  }
}

size_t IntegerBytes(gguf_type type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

std::string ShapeText(const int64_t* ne) {
  int dims = GGML_MAX_DIMS;
  while (dims > 1 && ne[dims - 1] == 1) {
    --dims;
  }
  return absl::StrCat("[", absl::StrJoin(absl::MakeConstSpan(ne, dims), ", "),
                      "]");
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(
    const std::string& path) {
  SilenceLibraries();
  std::unique_ptr<GgufFile> file(new GgufFile(path));
  EW_RETURN_IF_ERROR(file->Map());
  EW_RETURN_IF_ERROR(file->Parse());
  return file;
}

GgufFile::~GgufFile() {
  if (mapping_ != nullptr) {
    munmap(const_cast<std::byte*>(mapping_), mapping_bytes_);
  }
}

absl::Status GgufFile::Invalid(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
}

absl::Status GgufFile::Map() {
  const Descriptor fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat(path_, ": no such file"));
    }
    return Invalid(absl::StrCat("cannot be opened: ", std::strerror(error)));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return Invalid(absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return Invalid("is not a regular file");
  }
  if (info.st_size == 0) {
    return Invalid("is empty, not a GGUF file");
  }
  stamp_ = StampOf(info);
  mapping_bytes_ = static_cast<size_t>(info.st_size);
  void* mapping =
      mmap(nullptr, mapping_bytes_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapping == MAP_FAILED) {
    return Invalid(absl::StrCat("cannot be mapped (", mapping_bytes_,
                                " bytes): ", std::strerror(errno)));
  }
  mapping_ = static_cast<const std::byte*>(mapping);
  return absl::OkStatus();
}

absl::Status GgufFile::Parse() {
  constexpr size_t kMagicBytes = 4;
  if (mapping_bytes_ < kMagicBytes ||
      std::memcmp(mapping_, GGUF_MAGIC, kMagicBytes) != 0) {
    return Invalid("is not a GGUF file (wrong magic)");
  }
  TakeLibraryErrors();
  try {
    gguf_.reset(gguf_init_from_buffer(mapping_, mapping_bytes_,
                                      gguf_init_params{true, nullptr}));
  } catch (const std::exception& error) {
    return Invalid(absl::StrCat("cannot be parsed: ", error.what()));
  }
  if (gguf_ == nullptr) {
    return Invalid(absl::StrCat("is damaged or cut short (", mapping_bytes_,
                                " bytes): ", TakeLibraryErrors()));
  }
  const size_t data_offset = gguf_get_data_offset(gguf_.get());
  const int64_t count = gguf_get_n_tensors(gguf_.get());
  for (int64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    tensor.name = gguf_get_tensor_name(gguf_.get(), i);
    tensor.type = gguf_get_tensor_type(gguf_.get(), i);
    std::memcpy(tensor.ne, gguf_get_tensor_ne(gguf_.get(), i),
                sizeof(tensor.ne));
    tensor.bytes = gguf_get_tensor_size(gguf_.get(), i);
    const size_t relative = gguf_get_tensor_offset(gguf_.get(), i);
    if (data_offset > mapping_bytes_ ||
        relative > mapping_bytes_ - data_offset ||
        tensor.bytes > mapping_bytes_ - data_offset - relative) {
      return Invalid(absl::StrCat(
          "is cut short: tensor '", tensor.name, "' needs ", tensor.bytes,
          " bytes from offset ", data_offset, " + ", relative,
          ", but the file has ", mapping_bytes_, " bytes"));
    }
    tensor.offset = data_offset + relative;
    tensor_index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

bool GgufFile::Has(const std::string& key) const {
  return gguf_find_key(gguf_.get(), key.c_str()) >= 0;
}

bool GgufFile::IsArray(const std::string& key) const {
  return ArrayOf(key).has_value();
}

std::optional<GgufFile::ArrayShape> GgufFile::ArrayOf(
    const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0 || gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY) {
    return std::nullopt;
  }
  return ArrayShape{gguf_get_arr_type(gguf_.get(), id),
                    gguf_get_arr_n(gguf_.get(), id)};
}

absl::StatusOr<uint32_t> GgufFile::Uint(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) {
    return Invalid(absl::StrCat("key '", key, "' is missing"));
  }
  const gguf_type type = gguf_get_kv_type(gguf_.get(), id);
  if (IntegerBytes(type) == 0) {
    return Invalid(absl::StrCat("key '", key, "' is a ", gguf_type_name(type),
                                ", expected an integer"));
  }
  const std::optional<uint64_t> value =
      IntegerAt(type, gguf_get_val_data(gguf_.get(), id));
  if (!value || *value > std::numeric_limits<uint32_t>::max()) {
    return Invalid(absl::StrCat("key '", key, "' is out of range"));
  }
  return static_cast<uint32_t>(*value);
}

absl::StatusOr<std::vector<uint32_t>> GgufFile::UintArray(
    const std::string& key) const {
  const std::optional<ArrayShape> shape = ArrayOf(key);
  const size_t bytes = shape ? IntegerBytes(shape->type) : 0;
  if (bytes == 0) {
    return Invalid(absl::StrCat("key '", key, "' is not an array of integers"));
  }
  const auto* data = static_cast<const std::byte*>(
      gguf_get_arr_data(gguf_.get(), gguf_find_key(gguf_.get(), key.c_str())));
  std::vector<uint32_t> values;
  values.reserve(shape->size);
  for (size_t i = 0; i < shape->size; ++i) {
    const std::optional<uint64_t> value =
        IntegerAt(shape->type, data + i * bytes);
    if (!value || *value > std::numeric_limits<uint32_t>::max()) {
      return Invalid(absl::StrCat("key '", key, "' is out of range at ", i));
    }
    values.push_back(static_cast<uint32_t>(*value));
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> GgufFile::StringArray(
    const std::string& key) const {
  const std::optional<ArrayShape> shape = ArrayOf(key);
  if (!shape || shape->type != GGUF_TYPE_STRING) {
    return Invalid(absl::StrCat("key '", key, "' is not an array of strings"));
  }
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  std::vector<std::string> values;
  values.reserve(shape->size);
  for (size_t i = 0; i < shape->size; ++i) {
    values.emplace_back(gguf_get_arr_str(gguf_.get(), id, i));
  }
  return values;
}

absl::StatusOr<float> GgufFile::Float(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) {
    return Invalid(absl::StrCat("key '", key, "' is missing"));
  }
  const gguf_type type = gguf_get_kv_type(gguf_.get(), id);
  float value = 0.0f;
  if (type == GGUF_TYPE_FLOAT32) {
    value = gguf_get_val_f32(gguf_.get(), id);
  } else if (type == GGUF_TYPE_FLOAT64) {
    value = static_cast<float>(gguf_get_val_f64(gguf_.get(), id));
  } else {
    return Invalid(absl::StrCat("key '", key, "' is a ", gguf_type_name(type),
                                ", expected a floating-point number"));
  }
  if (!std::isfinite(value)) {
    return Invalid(absl::StrCat("key '", key, "' is not a finite number"));
  }
  return value;
}

absl::StatusOr<std::string> GgufFile::String(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) {
    return Invalid(absl::StrCat("key '", key, "' is missing"));
  }
  const gguf_type type = gguf_get_kv_type(gguf_.get(), id);
  if (type != GGUF_TYPE_STRING) {
    return Invalid(absl::StrCat("key '", key, "' is a ", gguf_type_name(type),
                                ", expected a string"));
  }
  return std::string(gguf_get_val_str(gguf_.get(), id));
}

absl::StatusOr<uint32_t> GgufFile::UintOr(const std::string& key,
                                          uint32_t missing) const {
  return Has(key) ? Uint(key) : missing;
}

absl::StatusOr<float> GgufFile::FloatOr(const std::string& key,
                                        float missing) const {
  return Has(key) ? Float(key) : missing;
}

absl::StatusOr<std::string> GgufFile::StringOr(
    const std::string& key, const std::string& missing) const {
  return Has(key) ? String(key) : missing;
}

const GgufTensor* GgufFile::Find(const std::string& name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace everwarm::models
