// A warning that would come for each of thousands of things: one line for the
// first, and then one now and then for all that came since.
#ifndef EVERWARM_BASE_REPEATED_WARNING_H_
#define EVERWARM_BASE_REPEATED_WARNING_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace everwarm {

// Threads: one at a time.
class RepeatedWarning {
 public:
  // Between two lines.
  static constexpr std::chrono::seconds kEvery{60};

  // `what` such as "blocks were not stored". The clock outlives this object.
  RepeatedWarning(std::string what, const Clock* clock, Logger logger);

  // It happened `count` times more, lastly for this reason.
  void Add(uint64_t count, std::string_view reason);
  // It went well again, which is said if a warning was, and not too soon: what
  // goes well and badly in turns is not two lines each time.
  void Recovered();

 private:
  const std::string what_;
  const Clock* const clock_;
  const Logger logger_;
  // Since it last went well, and of these, since the last line.
  uint64_t total_ = 0;
  uint64_t unsaid_ = 0;
  Clock::Monotonic said_at_{};
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_REPEATED_WARNING_H_
