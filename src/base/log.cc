#include "base/log.h"

#include "spdlog/sinks/null_sink.h"

namespace everwarm {

Logger NullLogger() {
  return std::make_shared<spdlog::logger>(
      "null", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace everwarm
