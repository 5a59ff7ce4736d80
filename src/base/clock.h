// Time as a parameter, so that tests move it by hand (testing/fake_clock.h).
#ifndef EVERWARM_BASE_CLOCK_H_
#define EVERWARM_BASE_CLOCK_H_

#include <chrono>

namespace everwarm {

// Threads: any.
class Clock {
 public:
  using Monotonic = std::chrono::steady_clock::time_point;
  using Wall = std::chrono::system_clock::time_point;

  virtual ~Clock() = default;
  // For intervals; never goes back.
  virtual Monotonic Now() const = 0;
  // For what a person or a file sees; may jump.
  virtual Wall WallNow() const = 0;
};

class SystemClock final : public Clock {
 public:
  Monotonic Now() const override;
  Wall WallNow() const override;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_CLOCK_H_
