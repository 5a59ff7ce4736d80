#include "base/clock.h"

namespace everwarm {

Clock::Monotonic SystemClock::Now() const {
  return std::chrono::steady_clock::now();
}

Clock::Wall SystemClock::WallNow() const {
  return std::chrono::system_clock::now();
}

}  // namespace everwarm
