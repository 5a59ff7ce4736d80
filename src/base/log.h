// The logger that is handed to whoever may log; there is no global one.
#ifndef EVERWARM_BASE_LOG_H_
#define EVERWARM_BASE_LOG_H_

#include <memory>

#include "spdlog/spdlog.h"

namespace everwarm {

// Threads: any. Never null: NullLogger() stands for silence.
using Logger = std::shared_ptr<spdlog::logger>;

Logger NullLogger();

}  // namespace everwarm

#endif  // EVERWARM_BASE_LOG_H_
