// Where background work runs: threads in the product, a queue that the test
// turns by hand in tests (testing/manual_executor.h).
#ifndef EVERWARM_BASE_EXECUTOR_H_
#define EVERWARM_BASE_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace everwarm {

// Threads: Schedule() from any thread, also from a running task.
class Executor {
 public:
  using Task = std::function<void()>;

  virtual ~Executor() = default;
  // Tasks start in the order given. Never blocks; whoever schedules bounds how
  // much it has outstanding.
  virtual void Schedule(Task task) = 0;
};

// Runs tasks on its own threads. The destructor runs what is still queued.
class ThreadExecutor final : public Executor {
 public:
  // `name` is shown by debuggers and top (15 characters are kept).
  ThreadExecutor(std::string name, size_t num_threads);
  ~ThreadExecutor() override;

  void Schedule(Task task) override;

 private:
  void Run();

  const std::string name_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_EXECUTOR_H_
