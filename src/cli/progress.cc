#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace everwarm::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuietFor{2000};
constexpr milliseconds kTerminalEvery{100};
constexpr milliseconds kPlainEvery{5000};

}  // namespace

Progress::Progress(std::string what, const Clock* clock)
    : what_(std::move(what)),
      clock_(clock),
      terminal_(isatty(STDERR_FILENO) == 1),
      began_(clock->Now()),
      shown_(began_) {}

Progress::~Progress() {
  if (any_shown_ && terminal_) {
    std::fputc('\n', stderr);
  }
}

void Progress::Update(float fraction) {
  const Clock::Monotonic now = clock_->Now();
  const bool due =
      any_shown_ ? now - shown_ >= (terminal_ ? kTerminalEvery : kPlainEvery)
                 : now - began_ >= kQuietFor;
  if (!due) {
    return;
  }
  std::fprintf(stderr, terminal_ ? "\r%s: %3.0f %%" : "%s: %.0f %%\n",
               what_.c_str(), static_cast<double>(fraction) * 100);
  std::fflush(stderr);
  shown_ = now;
  any_shown_ = true;
}

}  // namespace everwarm::cli
