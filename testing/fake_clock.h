// A clock that only the test moves.
#ifndef EVERWARM_TESTING_FAKE_CLOCK_H_
#define EVERWARM_TESTING_FAKE_CLOCK_H_

#include <chrono>

#include "base/clock.h"

namespace everwarm {

// Threads: one.
class FakeClock final : public Clock {
 public:
  Monotonic Now() const override { return now_; }
  Wall WallNow() const override { return wall_; }

  void Advance(std::chrono::nanoseconds by) {
    now_ += by;
    wall_ += std::chrono::duration_cast<Wall::duration>(by);
  }
  // Moves only what people and files see, in either direction.
  void SetWall(Wall wall) { wall_ = wall; }

 private:
  Monotonic now_{};
  // 2026-01-01 00:00:00 UTC.
  Wall wall_{std::chrono::seconds(1767225600)};
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_FAKE_CLOCK_H_
