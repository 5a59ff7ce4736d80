// Flushes that callers wait for, shared by all who ask for the same thing.
//
// One run at a time. Who asks while it runs joins it, unless something was
// published since it began; those share the next one.
//
// Threads: the engine's; outcomes are promises for any.
#ifndef EVERWARM_ENGINE_FLUSH_RUNS_H_
#define EVERWARM_ENGINE_FLUSH_RUNS_H_

#include <cstdint>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"

namespace everwarm::engine {

class FlushRuns {
 public:
  struct Call {
    Clock::Monotonic began;
    Clock::Monotonic deadline;
    // What is durable then leaves RAM.
    bool demote = false;
    // There may not be the time for all of it: from when it is added, also
    // while an earlier run goes on.
    bool newest_first = false;
    std::promise<DrainOutcome> outcome;
  };

  // Both outlive this object.
  FlushRuns(cache::KvCache* cache, const Clock* clock)
      : cache_(*cache), clock_(*clock) {}

  void Add(Call call);
  // Since then nobody waits longer than `grace`, whatever the deadlines.
  struct Hurry {
    Clock::Monotonic since;
    std::chrono::milliseconds grace{0};
  };
  // Begins what may begin, and ends what has ended or is out of time.
  void Settle(const std::optional<Hurry>& hurry);
  // Answers what has been ended.
  void SendAnswers();

  // No call waits for the disk.
  bool empty() const { return running_.empty() && next_.empty(); }

 private:
  void Begin();
  // Of those who still wait, the rest is answered with what there is now.
  static std::vector<Call> TakeLate(std::vector<Call>& calls,
                                    Clock::Monotonic now,
                                    const std::optional<Hurry>& hurry);
  void End(Call& call, const cache::FlushReport& report, bool timed_out);

  cache::KvCache& cache_;
  const Clock& clock_;
  std::vector<Call> running_;
  std::vector<Call> next_;
  std::vector<std::pair<std::promise<DrainOutcome>, DrainOutcome>> answers_;
  // Of the run; 0: none.
  uint64_t ticket_ = 0;
  uint64_t publications_ = 0;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_FLUSH_RUNS_H_
