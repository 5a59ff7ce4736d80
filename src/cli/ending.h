// How serve and run end: the exit code that says whether all is on the disk,
// and an end that does not wait for a disk that never answers.
#ifndef EVERWARM_CLI_ENDING_H_
#define EVERWARM_CLI_ENDING_H_

#include <chrono>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/log.h"
#include "base/mutex.h"
#include "engine/engine.h"

namespace everwarm::cli {

// kExitOk when nothing is lost, else kExitNotDurable; the counts are in the
// log.
int ExitCodeOf(const engine::FlushOutcome& outcome, spdlog::logger& logger);

// How long replies may run in a stop that takes `timeout` in all: the disk gets
// the last ten seconds of it, or half of a time that is shorter than twenty.
std::chrono::milliseconds TimeForReplies(std::chrono::milliseconds timeout);

// Ends the process at once, without destructors: threads of ours may wait for
// the disk for ever.
[[noreturn]] void EndNow(int code, spdlog::logger& logger);

// Ends the process with `code` unless it is destroyed within `patience`: around
// what waits for tasks of the disk without a bound.
//
// Threads: one of its own.
class EndInTime {
 public:
  EndInTime(int code, std::chrono::milliseconds patience, Logger logger);
  ~EndInTime();
  EndInTime(const EndInTime&) = delete;
  EndInTime& operator=(const EndInTime&) = delete;

 private:
  void Run(int code, std::chrono::milliseconds patience);

  const Logger logger_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_ENDING_H_
