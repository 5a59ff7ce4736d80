// The engine of this process: one thread that owns model, cache and sequences.
//
// Each turn of its loop takes what has arrived (requests, cancellations, events
// of the tier), gathers the rows of all running generations into one step, lets
// the model compute it, and hands tokens out. It never waits for a disk.
#ifndef EVERWARM_ENGINE_LOCAL_ENGINE_H_
#define EVERWARM_ENGINE_LOCAL_ENGINE_H_

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "cache/kv_cache.h"
#include "cache/tier.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/token_text.h"
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
    // Prompt tokens in one step, alone and beside running replies. Smaller
    // steps keep running replies going; larger ones share more work.
    uint32_t prefill_chunk = 512;
    uint32_t prefill_chunk_shared = 64;
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
  };

  // Requires: a valid config. Takes over the cache: from now on only the engine
  // thread uses it.
  LocalEngine(const Config& config, Parts parts);
  // Stops at once if Stop() was not called.
  ~LocalEngine() override;

  const models::ModelInfo& model() const override;
  uint32_t context_size() const override { return config_.context_size; }
  absl::StatusOr<std::unique_ptr<Reply>> Submit(Request request) override;
  FlushOutcome Flush(std::chrono::milliseconds timeout) override;
  EngineStats stats() const override;
  void CancelAll() override;
  FlushOutcome Stop(std::chrono::milliseconds deadline) override;

 private:
  struct FlushCall {
    Clock::Monotonic began;
    Clock::Monotonic deadline;
    uint64_t ticket = 0;
    std::promise<FlushOutcome> outcome;
  };

  void Run();
  // The turns of the loop.
  void TakeArrivals();
  void StartWaiting();
  void FinishLoads();
  void DropCancelled();
  bool GatherStep();
  void ComputeStep();
  void TakeResult(const Batch::Part& part, absl::Span<const float> logits);
  void Settle(Generation& generation);
  void Count(const Generation& generation);
  void DropFinished();
  void SettleFlushes();
  void PublishStats();

  absl::Status CheckRequest(const Request& request) const;
  std::future<FlushOutcome> StartFlush(std::chrono::milliseconds timeout);

  const Config config_;
  const Parts parts_;
  const std::shared_ptr<WakeUp> wake_up_;
  const TokenPos block_tokens_;
  // Full and latent groups can be resumed anywhere, so blocks may be published
  // as they fill; other groups only gain from chosen positions.
  const bool publish_as_it_fills_;

  mutable Mutex mutex_;
  std::deque<std::unique_ptr<Generation>> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<FlushCall>> arrived_flushes_
      ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  uint32_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> cancel_all_{false};
  CondVar finished_;

  // Engine thread only.
  std::deque<std::unique_ptr<Generation>> waiting_;
  std::vector<std::unique_ptr<Generation>> running_;
  std::vector<std::unique_ptr<FlushCall>> flushes_;
  Batch batch_;
  EngineStats counts_;

  Mutex stop_mutex_;
  std::optional<FlushOutcome> stopped_ ABSL_GUARDED_BY(stop_mutex_);
  std::thread thread_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_LOCAL_ENGINE_H_
