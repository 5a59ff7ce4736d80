// Memory that a direct read or write may use.
#ifndef EVERWARM_STORE_ALIGNED_BUFFER_H_
#define EVERWARM_STORE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "absl/types/span.h"
#include "store/env.h"

namespace everwarm::store {

// Zeroed, aligned to kIoAlignment, sized in multiples of it.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) { Resize(bytes); }

  // New zeroed memory of at least `bytes`, unless it is large enough already.
  void Resize(size_t bytes) {
    if (bytes <= size_) {
      return;
    }
    size_ = (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
    data_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, size_)));
    if (data_ == nullptr) {
      throw std::bad_alloc();
    }
    std::memset(data_.get(), 0, size_);
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  MutableBytes first(size_t bytes) const { return {data_.get(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_ALIGNED_BUFFER_H_
