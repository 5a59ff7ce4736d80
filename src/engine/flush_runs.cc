#include "engine/flush_runs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace everwarm::engine {

void FlushRuns::Add(Call call) {
  if (call.newest_first) {
    cache_.WriteNewestFirst();
  }
  next_.push_back(std::move(call));
}

void FlushRuns::Begin() {
  const bool joins = ticket_ != 0 && cache_.publications() == publications_;
  if (next_.empty() || (ticket_ != 0 && !joins)) {
    return;
  }
  if (!joins) {
    publications_ = cache_.publications();
    ticket_ = cache_.BeginFlush();
  }
  std::move(next_.begin(), next_.end(), std::back_inserter(running_));
  next_.clear();
}

void FlushRuns::Settle(const std::optional<Hurry>& hurry) {
  Begin();
  while (ticket_ != 0) {
    const std::optional<cache::FlushReport> report =
        cache_.FlushOutcome(ticket_);
    if (!report.has_value()) {
      break;
    }
    for (Call& call : running_) {
      End(call, *report, false);
    }
    running_.clear();
    ticket_ = 0;
    Begin();
  }
  const Clock::Monotonic now = clock_.Now();
  std::vector<Call> late = TakeLate(running_, now, hurry);
  for (Call& call : late) {
    End(call, cache_.FlushNow(ticket_), true);
  }
  late = TakeLate(next_, now, hurry);
  if (!late.empty()) {
    // What these ask about is more than what the run that they waited for knows
    // of.
    const uint64_t ticket = cache_.BeginFlush();
    const cache::FlushReport report = cache_.FlushNow(ticket);
    cache_.ForgetFlush(ticket);
    for (Call& call : late) {
      End(call, report, true);
    }
  }
  if (running_.empty() && ticket_ != 0) {
    cache_.ForgetFlush(ticket_);
    ticket_ = 0;
    Begin();
  }
}

std::vector<FlushRuns::Call> FlushRuns::TakeLate(
    std::vector<Call>& calls, Clock::Monotonic now,
    const std::optional<Hurry>& hurry) {
  const auto in_time = [&](const Call& call) {
    // A call that comes in the middle of a hurry has its grace too.
    const bool hurried =
        hurry.has_value() &&
        now >= std::max(hurry->since, call.began) + hurry->grace;
    return now < call.deadline && !hurried;
  };
  const auto first_late =
      std::stable_partition(calls.begin(), calls.end(), in_time);
  std::vector<Call> late(std::make_move_iterator(first_late),
                         std::make_move_iterator(calls.end()));
  calls.erase(first_late, calls.end());
  return late;
}

void FlushRuns::End(Call& call, const cache::FlushReport& report,
                    bool timed_out) {
  DrainOutcome outcome;
  outcome.flush.report = report;
  outcome.flush.timed_out = timed_out;
  if (call.demote) {
    const uint64_t before = cache_.stats().demoted_blocks;
    cache_.DemoteAll();
    const cache::CacheStats after = cache_.stats();
    outcome.demoted_blocks = after.demoted_blocks - before;
    outcome.ram_used_bytes = after.ram_used_bytes;
  }
  outcome.flush.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      clock_.Now() - call.began);
  answers_.emplace_back(std::move(call.outcome), outcome);
}

void FlushRuns::SendAnswers() {
  for (auto& [promise, outcome] : answers_) {
    promise.set_value(outcome);
  }
  answers_.clear();
}

}  // namespace everwarm::engine
