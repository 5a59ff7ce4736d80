// A model file whose weights are the same numbers in f32.
//
// Products with quantised weights round their inputs to 8 bits, which turns a
// difference in the last bit of a float into one of 1/128: two correct
// implementations then differ by chance. With f32 weights they don't.
#ifndef EVERWARM_TESTING_F32_GGUF_H_
#define EVERWARM_TESTING_F32_GGUF_H_

#include <string>

#include "absl/status/status.h"

namespace everwarm {

// Writes what is in the file `from`, all tensors as f32, to the new file `to`.
absl::Status WriteF32Gguf(const std::string& from, const std::string& to);

}  // namespace everwarm

#endif  // EVERWARM_TESTING_F32_GGUF_H_
