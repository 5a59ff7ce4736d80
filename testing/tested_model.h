// The models that tests of the whole run on: those of tools/setup.sh, and a
// small one of each architecture that the test writes itself.
#ifndef EVERWARM_TESTING_TESTED_MODEL_H_
#define EVERWARM_TESTING_TESTED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "ggml.h"
#include "testing/source_files.h"
#include "testing/temp_dir.h"
#include "testing/tiny_architectures.h"

namespace everwarm {

inline constexpr char kSmolLm[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr char kGemma[] = "gemma-3-270m-q4_k_m.gguf";

// A file that was fetched, rather than the name of a TinyArchitecture.
inline bool IsFetchedModel(const std::string& name) {
  return absl::EndsWith(name, ".gguf");
}

inline std::vector<std::string> TinyModelNames() {
  std::vector<std::string> names;
  for (const TinyArchitecture& tiny : TinyArchitectures()) {
    names.push_back(tiny.name);
  }
  return names;
}

// Where the model of that name is. A small one is written into `dir` with Q8_0
// weights, whose products are row-independent. Empty: it cannot be written.
inline std::string TestedModelPath(const std::string& name,
                                   const TempDir& dir) {
  if (IsFetchedModel(name)) {
    return ModelPath(name);
  }
  for (const TinyArchitecture& tiny : TinyArchitectures()) {
    if (tiny.name == name) {
      const std::string path = dir.File(name + ".gguf");
      return tiny.make(GGML_TYPE_Q8_0).Write(path) ? path : "";
    }
  }
  return "";
}

// Small ones gain nothing from a second thread.
inline uint32_t TestedModelThreads(const std::string& name) {
  return IsFetchedModel(name) ? 2 : 1;
}

// For names of parameterised tests.
inline std::string TestedModelName(const std::string& name) {
  return name == kSmolLm ? "SmolLM2" : name == kGemma ? "Gemma3" : name;
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TESTED_MODEL_H_
