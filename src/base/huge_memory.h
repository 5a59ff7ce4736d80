// Anonymous memory that begins on a huge page and asks the system for huge
// pages.
#ifndef EVERWARM_BASE_HUGE_MEMORY_H_
#define EVERWARM_BASE_HUGE_MEMORY_H_

#include <cstddef>
#include <optional>
#include <utility>

namespace everwarm {

// Owns: the mapping; pages that were not written yet cost nothing and are zero.
class HugeMemory {
 public:
  // Nothing when the system gives no more. `bytes` > 0.
  static std::optional<HugeMemory> Map(size_t bytes);
  HugeMemory(HugeMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  HugeMemory& operator=(HugeMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~HugeMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  HugeMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_HUGE_MEMORY_H_
