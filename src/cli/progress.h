// Progress of long jobs: a line that renews itself on a terminal, plain lines
// now and then elsewhere, and nothing at all for what takes under two seconds.
#ifndef EVERWARM_CLI_PROGRESS_H_
#define EVERWARM_CLI_PROGRESS_H_

#include <chrono>
#include <string>

#include "base/clock.h"

namespace everwarm::cli {

// Threads: one at a time.
class Progress {
 public:
  // `what` such as "hashing the weights".
  Progress(std::string what, const Clock* clock);
  // Ends the line, if one was begun.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `fraction` from 0 to 1.
  void Update(float fraction);

 private:
  const std::string what_;
  const Clock* clock_;
  const bool terminal_;
  const Clock::Monotonic began_;
  Clock::Monotonic shown_;
  bool any_shown_ = false;
};

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_PROGRESS_H_
