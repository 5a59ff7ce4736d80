// An engine that answers by script, and waits where the script says so.
#ifndef EVERWARM_TESTING_FAKE_ENGINE_H_
#define EVERWARM_TESTING_FAKE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "engine/engine.h"

namespace everwarm {

// What one reply does.
struct FakeReplyScript {
  // Sent first, as one event each.
  std::vector<std::string> pieces;
  // After the pieces nothing comes until the reply is cancelled.
  bool endless = false;
  // After the pieces, in place of the finish.
  std::optional<absl::Status> failure;
  engine::FinishReason reason = engine::FinishReason::kStop;
  engine::Usage usage;
  // The stop string that ends it.
  std::string stop = {};
};

// Threads: any.
class FakeEngine final : public engine::Engine {
 public:
  FakeEngine() {
    model_.path = "/models/fake.gguf";
    model_.name = "fake";
    model_.architecture = "llama";
    model_.vocab_size = 256;
  }

  // --- what a test sets, before or between requests ---
  void set_context_size(uint32_t tokens) { context_size_ = tokens; }
  void SetScript(FakeReplyScript script) {
    MutexLock lock(mutex_);
    script_ = std::move(script);
  }
  // The next Submit() calls fail with it; OK again: they work.
  void SetRefusal(absl::Status status) {
    MutexLock lock(mutex_);
    refusal_ = std::move(status);
  }
  // Submit() calls after so many are refused as too many.
  void set_max_requests(size_t count) { max_requests_ = count; }
  void SetFlushOutcome(engine::FlushOutcome outcome) {
    MutexLock lock(mutex_);
    flush_outcome_ = outcome;
  }
  void SetDrainOutcome(engine::DrainOutcome outcome) {
    MutexLock lock(mutex_);
    drain_outcome_ = outcome;
  }
  void SetStats(engine::EngineStats stats) {
    MutexLock lock(mutex_);
    stats_ = stats;
  }

  // --- what a test asks ---
  std::vector<std::string> closed_sessions() const {
    MutexLock lock(mutex_);
    return closed_sessions_;
  }
  std::vector<engine::Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }
  // The last one. Requires: there is one.
  engine::Request last_request() const {
    MutexLock lock(mutex_);
    return requests_.back();
  }
  // False when there were fewer after `timeout`.
  bool WaitForRequests(size_t count, std::chrono::milliseconds timeout) {
    return WaitFor([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                       mutex_) { return requests_.size() >= count; },
                   timeout);
  }
  bool WaitForCancelled(uint32_t count, std::chrono::milliseconds timeout) {
    return WaitFor([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                       mutex_) { return cancelled_ >= count; },
                   timeout);
  }

  // --- Engine ---
  const models::ModelInfo& model() const override { return model_; }
  uint32_t context_size() const override { return context_size_; }

  absl::StatusOr<std::unique_ptr<engine::Reply>> Submit(
      engine::Request request) override {
    MutexLock lock(mutex_);
    if (!refusal_.ok()) {
      return refusal_;
    }
    if (requests_.size() >= max_requests_) {
      return absl::ResourceExhaustedError("too many requests wait");
    }
    FakeReplyScript script = script_;
    script.usage.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    requests_.push_back(std::move(request));
    changed_.NotifyAll();
    return std::make_unique<FakeReply>(this, std::move(script));
  }

  engine::FlushOutcome Flush(std::chrono::milliseconds) override {
    MutexLock lock(mutex_);
    return flush_outcome_;
  }
  void CloseSession(std::string id) override {
    MutexLock lock(mutex_);
    closed_sessions_.push_back(std::move(id));
  }
  engine::DrainOutcome Drain(std::chrono::milliseconds) override {
    MutexLock lock(mutex_);
    return drain_outcome_;
  }
  engine::EngineStats stats() const override {
    MutexLock lock(mutex_);
    return stats_;
  }
  void CancelAll() override {}
  engine::FlushOutcome Stop(std::chrono::milliseconds) override {
    MutexLock lock(mutex_);
    refusal_ = absl::UnavailableError("the engine stops");
    return flush_outcome_;
  }

 private:
  class FakeReply final : public engine::Reply {
   public:
    FakeReply(FakeEngine* engine, FakeReplyScript script)
        : engine_(engine), script_(std::move(script)) {}
    ~FakeReply() override { Cancel(); }

    std::optional<engine::ReplyEvent> Next(
        std::chrono::milliseconds timeout) override {
      if (next_piece_ < script_.pieces.size() && !cancelled()) {
        return engine::TextEvent{script_.pieces[next_piece_++]};
      }
      if (script_.endless && !WaitUntilCancelled(timeout)) {
        return std::nullopt;
      }
      over_ = true;
      if (script_.failure && !cancelled()) {
        return engine::FailedEvent{*script_.failure};
      }
      script_.usage.completion_tokens = static_cast<uint32_t>(next_piece_);
      return engine::FinishedEvent{
          cancelled() ? engine::FinishReason::kCancelled : script_.reason,
          script_.usage, script_.stop};
    }

    void Cancel() override {
      MutexLock lock(engine_->mutex_);
      if (!over_ && !cancelled_) {
        cancelled_ = true;
        ++engine_->cancelled_;
        engine_->changed_.NotifyAll();
      }
    }

   private:
    bool cancelled() const {
      MutexLock lock(engine_->mutex_);
      return cancelled_;
    }
    bool WaitUntilCancelled(std::chrono::milliseconds timeout) {
      return engine_->WaitFor([&] { return cancelled_; }, timeout);
    }

    FakeEngine* const engine_;
    FakeReplyScript script_;
    size_t next_piece_ = 0;
    bool over_ = false;
    bool cancelled_ = false;  // guarded by the engine's mutex
  };

  template <typename Condition>
  bool WaitFor(Condition condition, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(mutex_);
    while (!condition()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        return false;
      }
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

  models::ModelInfo model_;
  uint32_t context_size_ = 4096;
  size_t max_requests_ = std::numeric_limits<size_t>::max();

  mutable Mutex mutex_;
  CondVar changed_;
  FakeReplyScript script_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  engine::FlushOutcome flush_outcome_ ABSL_GUARDED_BY(mutex_);
  engine::DrainOutcome drain_outcome_ ABSL_GUARDED_BY(mutex_);
  engine::EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  std::vector<engine::Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> closed_sessions_ ABSL_GUARDED_BY(mutex_);
  uint32_t cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_FAKE_ENGINE_H_
