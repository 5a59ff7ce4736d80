// Bounds how many requests hold an HTTP worker for long, so that short ones
// (health, statistics) always find one, and knows when the last has left.
#ifndef EVERWARM_SERVER_GENERATION_GATE_H_
#define EVERWARM_SERVER_GENERATION_GATE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace everwarm::server {

// Threads: any.
class GenerationGate {
 public:
  explicit GenerationGate(uint32_t max_open) : max_open_(max_open) {}

  // A place inside, given back when destroyed. The gate outlives it.
  class Pass {
   public:
    explicit Pass(GenerationGate* gate) : gate_(gate) {}
    ~Pass() { Leave(); }
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      if (this != &other) {
        Leave();
        gate_ = std::exchange(other.gate_, nullptr);
      }
      return *this;
    }

   private:
    void Leave() {
      if (gate_ != nullptr) {
        gate_->Leave();
      }
    }
    GenerationGate* gate_;
  };

  // Nothing when it is full or closed.
  std::optional<Pass> Enter() {
    MutexLock lock(mutex_);
    if (closed_ || open_ >= max_open_) {
      return std::nullopt;
    }
    ++open_;
    return Pass(this);
  }

  // Nobody enters any more.
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

  // False when somebody was still inside after `timeout`.
  bool WaitUntilEmpty(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(mutex_);
    while (open_ > 0) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        return false;
      }
      left_.WaitFor(mutex_, left);
    }
    return true;
  }

  uint32_t open() const {
    MutexLock lock(mutex_);
    return open_;
  }
  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  void Leave() {
    MutexLock lock(mutex_);
    --open_;
    left_.NotifyAll();
  }

  const uint32_t max_open_;
  mutable Mutex mutex_;
  CondVar left_;
  uint32_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_GENERATION_GATE_H_
