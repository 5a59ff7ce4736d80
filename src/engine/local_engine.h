// The engine of this process: one thread that owns model, cache and sequences.
//
// Each turn of its loop takes what has arrived (requests, cancellations, events
// of the tier) and lets the scheduler compute one step. It never waits for a
// disk.
#ifndef EVERWARM_ENGINE_LOCAL_ENGINE_H_
#define EVERWARM_ENGINE_LOCAL_ENGINE_H_

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "cache/kv_cache.h"
#include "cache/latest_conversations.h"
#include "cache/preload.h"
#include "cache/tier.h"
#include "engine/engine.h"
#include "engine/flush_runs.h"
#include "engine/generation.h"
#include "engine/scheduler.h"
#include "engine/token_history.h"
#include "engine/token_text.h"
#include "models/kv_sizes.h"
#include "models/model.h"

namespace everwarm::engine {

// Wakes the engine thread. Shared with whoever may outlive the engine.
//
// Threads: any.
class WakeUp {
 public:
  void Notify();
  // Returns when Notify() has been called since the last Wait(), or at timeout.
  void Wait(std::chrono::milliseconds timeout);

 private:
  Mutex mutex_;
  CondVar condition_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

class LocalEngine final : public Engine {
 public:
  struct Config {
    // Longest prompt plus reply, in tokens.
    uint32_t context_size = 8192;
    // Generations that run at once; others wait in order of arrival.
    uint32_t max_batch = 8;
    uint32_t max_waiting = 256;
    // Most prompt tokens in one step.
    uint32_t prefill_chunk = 512;
    // Tokens between two states that a recurrent model leaves on its way; a
    // power of two, 64 at least, or 0: none.
    uint32_t state_every = 512;
    // A running reply's time from token to token, while prompts are computed
    // beside it, may be so many times what it is otherwise.
    double max_slowdown = 3;
    // And one of 28 of these times, where replies are fast, up to so long; 0:
    // none.
    std::chrono::milliseconds max_gap{600};
    // RAM that the latest conversations are read into while nobody asks; 0:
    // none are.
    uint64_t preload_bytes = 0;
    // What a stop leaves to the disk, whatever became of its time.
    std::chrono::milliseconds least_stop_flush{10000};
    absl::Status Validate() const;
  };
  // All outlive the engine.
  struct Parts {
    models::Model* model = nullptr;
    const TokenText* text = nullptr;
    cache::KvCache* cache = nullptr;
    cache::Tier* tier = nullptr;
    const Clock* clock = nullptr;
    Logger logger;
    // Learns the tokens of finished conversations; may be null.
    TokenHistory* history = nullptr;
  };

  // Requires: a valid config. Takes over the cache: from now on only the engine
  // thread uses it. `latest`: conversations that a start-up scan found, the
  // latest one last.
  LocalEngine(const Config& config, Parts parts,
              std::vector<cache::Conversation> latest = {});
  // Stops at once if Stop() was not called.
  ~LocalEngine() override;

  const models::ModelInfo& model() const override;
  uint32_t context_size() const override { return context_size_; }
  absl::StatusOr<std::unique_ptr<Reply>> Submit(Request request) override;
  FlushOutcome Flush(std::chrono::milliseconds timeout) override;
  DrainOutcome Drain(std::chrono::milliseconds timeout) override;
  void CloseSession(std::string id) override;
  EngineStats stats() const override;
  void CancelAll() override;
  FlushOutcome Stop(std::chrono::milliseconds deadline) override;

 private:
  void Run();
  // The turns of the loop.
  void TakeArrivals();
  std::optional<FlushRuns::Hurry> AskHurry();
  void SendEndings(bool hurried);
  void PublishStats();
  // Reads ahead while there is nothing to compute.
  void ContinuePreload(bool idle);
  void EndPreload();

  absl::Status CheckRequest(const Request& request) const;
  // Flushes with the demote and newest_first of `call`.
  DrainOutcome RunFlush(FlushRuns::Call call,
                        std::chrono::milliseconds timeout);

  const Config config_;
  const Parts parts_;
  const std::shared_ptr<WakeUp> wake_up_;
  const models::KvSizes kv_sizes_;
  // What was asked for, or as much of it as the RAM for blocks holds.
  const uint32_t context_size_;

  mutable Mutex mutex_;
  std::deque<std::unique_ptr<Generation>> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<FlushRuns::Call> arrived_flushes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> closed_sessions_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  uint32_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  // When CancelAll() was first called.
  std::optional<Clock::Monotonic> hurried_at_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> cancel_all_{false};
  CondVar finished_;

  // Engine thread only.
  Scheduler scheduler_;
  FlushRuns flushes_;
  // Null when it is done.
  std::unique_ptr<cache::Preload> preload_;

  Mutex stop_mutex_;
  std::optional<FlushOutcome> stopped_ ABSL_GUARDED_BY(stop_mutex_);
  std::thread thread_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_LOCAL_ENGINE_H_
