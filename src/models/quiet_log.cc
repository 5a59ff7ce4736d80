#include "models/quiet_log.h"

#include <mutex>
#include <utility>

#include "ggml.h"
#include "llama.h"
#include "log.h"

namespace everwarm::models {
namespace {

constexpr size_t kMaxErrorBytes = 600;

std::string& ThreadErrors() {
  thread_local std::string errors;
  return errors;
}

void KeepErrors(ggml_log_level level, const char* text, void*) {
  // A continued line belongs to whatever came before it.
  if (level != GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT) {
    return;
  }
  std::string& errors = ThreadErrors();
  if (level == GGML_LOG_LEVEL_CONT && errors.empty()) {
    return;
  }
  for (; *text != '\0' && errors.size() < kMaxErrorBytes; ++text) {
    if (*text != '\n') {
      errors.push_back(*text);
    } else if (!errors.empty() && !errors.ends_with("; ")) {
      errors.append("; ");
    }
  }
}

}  // namespace

void SilenceLibraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(&KeepErrors, nullptr);
    ggml_log_set(&KeepErrors, nullptr);
    // llama-common has a logger of its own, with a level below its errors for
    // silence.
    common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT - 1);
  });
}

std::string TakeLibraryErrors() {
  std::string errors = std::exchange(ThreadErrors(), std::string());
  if (errors.ends_with("; ")) {
    errors.resize(errors.size() - 2);
  }
  return errors;
}

}  // namespace everwarm::models
