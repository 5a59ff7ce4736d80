// An executor that the test turns by hand, on the test's own thread.
#ifndef EVERWARM_TESTING_MANUAL_EXECUTOR_H_
#define EVERWARM_TESTING_MANUAL_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "base/executor.h"

namespace everwarm {

// Threads: one.
class ManualExecutor final : public Executor {
 public:
  void Schedule(Task task) override { queue_.push_back(std::move(task)); }

  // Runs the oldest task; false when there is none.
  bool RunOne() {
    if (queue_.empty()) {
      return false;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    task();
    return true;
  }

  // Runs until nothing is left, also what running tasks add. Returns how many.
  size_t RunAll() {
    size_t ran = 0;
    while (RunOne()) {
      ++ran;
    }
    return ran;
  }

  size_t size() const { return queue_.size(); }

 private:
  std::deque<Task> queue_;
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_MANUAL_EXECUTOR_H_
