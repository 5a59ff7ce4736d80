// The models that tests of the whole run on: those of tools/setup.sh, and a
// small one of each architecture that the test writes itself.
#ifndef EVERWARM_TESTING_TESTED_MODEL_H_
#define EVERWARM_TESTING_TESTED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "ggml.h"
#include "models/kv_scheme.h"
#include "testing/source_files.h"
#include "testing/temp_dir.h"
#include "testing/tiny_architectures.h"

namespace everwarm {

inline constexpr char kSmolLm[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr char kGemma[] = "gemma-3-270m-q4_k_m.gguf";

// Names are those of files and of TinyArchitectures; "NAME|SCHEME" keeps keys
// and values otherwise than in f16.
inline std::string ModelPart(const std::string& name) {
  return name.substr(0, name.find('|'));
}
inline models::KvScheme TestedModelKv(const std::string& name) {
  const size_t bar = name.find('|');
  return bar == std::string::npos
             ? models::KvScheme()
             : models::KvScheme::Parse(name.substr(bar + 1)).value();
}

// Every kind of layer whose first tokens have a codec of their own: beside
// windows, states, and as latents; halves first, and another space first.
inline std::vector<std::string> MixedModelNames() {
  return {"llama|q4+f16:64",     "llama|turbo+q8:100", "llama|q8+turbo:k8v5:65",
          "gemma3|turbo+f16:64", "lfm2|q4+f16:64",     "deepseek2|q4+f16:30"};
}

// A file that was fetched, rather than the name of a TinyArchitecture.
inline bool IsFetchedModel(const std::string& name) {
  return absl::EndsWith(ModelPart(name), ".gguf");
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
    return ModelPath(ModelPart(name));
  }
  for (const TinyArchitecture& tiny : TinyArchitectures()) {
    if (tiny.name == ModelPart(name)) {
      const std::string path = dir.File(std::string(tiny.name) + ".gguf");
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
  const std::string model = ModelPart(name);
  std::string text = model == kSmolLm  ? "SmolLM2"
                     : model == kGemma ? "Gemma3"
                                       : model;
  for (const char c : name.substr(model.size())) {
    text += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return text;
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_TESTED_MODEL_H_
