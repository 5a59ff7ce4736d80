#include "models/deep_stack.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace everwarm::models {
namespace {

// Anonymous memory whose lowest page faults, so that an overflow is a clean
// crash and never a write into a neighbour.
class StackMemory {
 public:
  StackMemory(size_t bytes, size_t page)
      : page_(page), bytes_((bytes + page - 1) / page * page + page) {
    base_ =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (ok()) {
      mprotect(base_, page_, PROT_NONE);
      // Pages are counted one by one, and most are never touched.
      madvise(base_, bytes_, MADV_NOHUGEPAGE);
    }
  }
  ~StackMemory() {
    if (ok()) {
      munmap(base_, bytes_);
    }
  }
  StackMemory(const StackMemory&) = delete;
  StackMemory& operator=(const StackMemory&) = delete;

  bool ok() const { return base_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(base_) + page_; }
  size_t size() const { return bytes_ - page_; }

  // Bytes of pages that were touched, from the top down.
  size_t Reached() const {
    std::vector<unsigned char> resident(size() / page_);
    if (mincore(data(), size(), resident.data()) != 0) {
      return size();
    }
    const auto lowest =
        std::find_if(resident.begin(), resident.end(),
                     [](unsigned char page) { return (page & 1) != 0; });
    return static_cast<size_t>(resident.end() - lowest) * page_;
  }

 private:
  const size_t page_;
  const size_t bytes_;
  void* base_;
};

void* CallWork(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

}  // namespace

absl::StatusOr<size_t> RunOnStack(size_t stack_bytes,
                                  const std::function<void()>& work) {
  const StackMemory stack(std::max<size_t>(stack_bytes, PTHREAD_STACK_MIN),
                          static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  if (!stack.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no stack of ", stack_bytes, " bytes"));
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack.data(), stack.size());
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, &CallWork,
                                   const_cast<std::function<void()>*>(&work));
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread with a stack of ", stack_bytes,
                     " bytes: ", std::strerror(error)));
  }
  pthread_join(thread, nullptr);
  return stack.Reached();
}

}  // namespace everwarm::models
