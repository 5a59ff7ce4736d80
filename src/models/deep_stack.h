// Running code that recurses as deep as its input is long.
#ifndef EVERWARM_MODELS_DEEP_STACK_H_
#define EVERWARM_MODELS_DEEP_STACK_H_

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace everwarm::models {

// Runs `work` on a thread with a stack of `stack_bytes` and waits for it. Pages
// of the stack that are not reached cost no memory. Returns how many bytes of
// it were reached, a page's size exactly or less.
//
// Errors: kResourceExhausted, the system gives no such stack or no thread.
absl::StatusOr<size_t> RunOnStack(size_t stack_bytes,
                                  const std::function<void()>& work);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_DEEP_STACK_H_
