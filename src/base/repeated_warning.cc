#include "base/repeated_warning.h"

#include <utility>

namespace everwarm {

RepeatedWarning::RepeatedWarning(std::string what, const Clock* clock,
                                 Logger logger)
    : what_(std::move(what)), clock_(clock), logger_(std::move(logger)) {}

void RepeatedWarning::Add(uint64_t count, std::string_view reason) {
  const Clock::Monotonic now = clock_->Now();
  const bool first = total_ == 0;
  total_ += count;
  unsaid_ += count;
  if (!first && now - said_at_ < kEvery) {
    return;
  }
  if (first) {
    logger_->warn("{} {}: {}", unsaid_, what_, reason);
  } else {
    logger_->warn(
        "{} more {} in the last {} s ({} in all): {}", unsaid_, what_,
        std::chrono::duration_cast<std::chrono::seconds>(now - said_at_)
            .count(),
        total_, reason);
  }
  unsaid_ = 0;
  said_at_ = now;
}

void RepeatedWarning::Recovered() {
  if (total_ == 0 || clock_->Now() - said_at_ < kEvery) {
    return;
  }
  logger_->info("{} {}, and now it goes well again", total_, what_);
  total_ = 0;
  unsaid_ = 0;
}

}  // namespace everwarm
