// Numbers that a GGUF's keys give, with the range that each may have.
#ifndef EVERWARM_MODELS_KEY_READER_H_
#define EVERWARM_MODELS_KEY_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/gguf_file.h"

namespace everwarm::models {

// Reads keys "<architecture>.<name>" and keeps the first error; what is read
// after it is within its range, and means nothing.
//
// Threads: one.
class KeyReader {
 public:
  // `file` outlives the reader.
  KeyReader(const GgufFile& file, const std::string& architecture)
      : file_(file), prefix_(architecture + ".") {}

  std::string Key(const std::string& name) const { return prefix_ + name; }

  // A number from `low` to `high`; `missing` when the file has no such key. An
  // array must have one number throughout.
  uint32_t Uint(const std::string& name, uint32_t low, uint32_t high,
                std::optional<uint32_t> missing = std::nullopt);
  // One number for each layer, from an array or from one for all; 0 when the
  // key is missing.
  std::vector<uint32_t> PerLayer(const std::string& name, uint32_t layers,
                                 uint32_t low, uint32_t high);
  // A finite number.
  float Float(const std::string& name, std::optional<float> missing);

  void Fail(absl::Status status) {
    if (status_.ok()) {
      status_ = std::move(status);
    }
  }
  // kInvalidArgument or kUnimplemented, with the file's and the key's name.
  const absl::Status& status() const { return status_; }

 private:
  uint32_t Checked(const std::string& name, absl::StatusOr<uint32_t> value,
                   uint32_t low, uint32_t high);
  uint32_t Uniform(const std::string& name, uint32_t low, uint32_t high);

  const GgufFile& file_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_KEY_READER_H_
