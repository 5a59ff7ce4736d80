#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace everwarm::cli {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

std::optional<int> WaitForStopSignal(std::chrono::milliseconds timeout) {
  const sigset_t signals = StopSignals();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec wait{};
  wait.tv_sec = seconds.count();
  wait.tv_nsec =
      std::chrono::duration_cast<std::chrono::nanoseconds>(timeout - seconds)
          .count();
  const int got = sigtimedwait(&signals, nullptr, &wait);
  if (got < 0) {
    return std::nullopt;
  }
  return got;
}

}  // namespace everwarm::cli
