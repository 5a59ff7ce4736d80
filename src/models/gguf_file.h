// A GGUF file: its keys by type, its tensors by name, its bytes by mapping.
//
// ggml parses it (gguf.h); this adds what ggml leaves to its callers: types are
// checked before values are read, and tensors before they are touched, because
// ggml's own getters abort the process.
//
// Threads: immutable after Open(), any.
#ifndef EVERWARM_MODELS_GGUF_FILE_H_
#define EVERWARM_MODELS_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "models/file_stamp.h"

namespace everwarm::models {

struct GgufTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  // Elements, innermost first as in the file; 1 beyond its dimensions.
  int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
  // From the start of the file.
  size_t offset = 0;
  size_t bytes = 0;
};

// "[576, 1536]", innermost first, as GGUF tools print it.
std::string ShapeText(const int64_t* ne);

class GgufFile {
 public:
  // Maps and parses the file.
  // Errors: kNotFound, no such file; kInvalidArgument, not a readable GGUF, or
  // cut short: the message has the path and what is wrong.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(
      const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  // Of the file that is mapped, as it was when it was.
  const FileStamp& stamp() const { return stamp_; }

  bool Has(const std::string& key) const;
  // Values of keys. Integers are taken from any integer type that holds them.
  // Errors: kInvalidArgument, the key is missing or has another type.
  absl::StatusOr<uint32_t> Uint(const std::string& key) const;
  absl::StatusOr<float> Float(const std::string& key) const;
  absl::StatusOr<std::string> String(const std::string& key) const;
  // Integers or booleans, one per element.
  absl::StatusOr<std::vector<uint32_t>> UintArray(const std::string& key) const;
  absl::StatusOr<std::vector<std::string>> StringArray(
      const std::string& key) const;
  bool IsArray(const std::string& key) const;
  // The same with a value for a missing key; another type is still an error.
  absl::StatusOr<uint32_t> UintOr(const std::string& key,
                                  uint32_t missing) const;
  absl::StatusOr<float> FloatOr(const std::string& key, float missing) const;
  absl::StatusOr<std::string> StringOr(const std::string& key,
                                       const std::string& missing) const;

  // Type of the elements and their number; nothing when the key is missing or
  // is not an array.
  struct ArrayShape {
    gguf_type type;
    size_t size;
  };
  std::optional<ArrayShape> ArrayOf(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* Find(const std::string& name) const;
  const std::byte* Data(const GgufTensor& tensor) const {
    return mapping_ + tensor.offset;
  }

  // kInvalidArgument with the file's name in front of `what`.
  absl::Status Invalid(const std::string& what) const;

 private:
  explicit GgufFile(std::string path) : path_(std::move(path)) {}
  absl::Status Map();
  absl::Status Parse();

  const std::string path_;
  FileStamp stamp_;
  const std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  gguf_context_ptr gguf_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> tensor_index_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_GGUF_FILE_H_
