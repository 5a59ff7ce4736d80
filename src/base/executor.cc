#include "base/executor.h"

#include <pthread.h>

#include <utility>

namespace everwarm {

ThreadExecutor::ThreadExecutor(std::string name, size_t num_threads)
    : name_(std::move(name)) {
  threads_.reserve(num_threads);
  for (size_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

ThreadExecutor::~ThreadExecutor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ThreadExecutor::Schedule(Task task) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void ThreadExecutor::Run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) {
        wake_.Wait(mutex_);
      }
      if (queue_.empty()) {
        return;
      }
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace everwarm
