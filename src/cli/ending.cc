#include "cli/ending.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/units.h"
#include "cli/commands.h"

namespace everwarm::cli {

using std::chrono::milliseconds;

int ExitCodeOf(const engine::FlushOutcome& outcome, spdlog::logger& logger) {
  const cache::FlushReport& report = outcome.report;
  if (outcome.nothing_lost()) {
    logger.info("stopped; {} blocks on the disk", report.entries);
    return kExitOk;
  }
  logger.error(
      "stopped, but not everything is on the disk: {} blocks ({}) pending, {} "
      "failed, {} dropped, {} missing",
      report.pending, FormatBytes(report.pending_bytes), report.failed,
      report.dropped, report.missing);
  return kExitNotDurable;
}

milliseconds TimeForReplies(milliseconds timeout) {
  constexpr milliseconds kDisk{10000};
  return timeout - std::min(kDisk, timeout / 2);
}

void EndNow(int code, spdlog::logger& logger) {
  logger.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

EndInTime::EndInTime(int code, milliseconds patience, Logger logger)
    : logger_(std::move(logger)),
      thread_([this, code, patience] { Run(code, patience); }) {}

EndInTime::~EndInTime() {
  {
    MutexLock lock(mutex_);
    done_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void EndInTime::Run(int code, milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (!done_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) {
      logger_->warn("the disk does not answer; it is not waited for");
      EndNow(code, *logger_);
    }
    changed_.WaitFor(mutex_, left);
  }
}

}  // namespace everwarm::cli
