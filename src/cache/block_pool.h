// The memory of all blocks, live and cached alike: one pool, one byte count.
//
// Slots of one geometry have one size and lie in large mapped chunks that come
// and go with use. A layer group has one geometry, or one for its first spans
// and one for the rest. A BlockRef is a share of a slot: copying it lends the
// block, dropping the last one gives the slot back. A pin, a loan, a queued
// write and a cached node are all the same thing: a BlockRef.
#ifndef EVERWARM_CACHE_BLOCK_POOL_H_
#define EVERWARM_CACHE_BLOCK_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/block_geometry.h"
#include "base/by_span.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace everwarm::cache {

class BlockPool;
// All slots of one group and geometry, from within.
struct PoolSlots;

// One slot in use.
//
// Threads:  data() below filled() is immutable while anybody else shares the
//           block; behind it, only the engine thread writes. filled() belongs
//           to the engine thread.
class Block {
 public:
  std::byte* data() const { return data_; }
  GroupIndex group() const { return group_; }
  const BlockGeometry& geometry() const { return *geometry_; }
  // Tokens that have been written, or claimed by the one who is about to write
  // them, from the start of the span. The tail grows behind it in place;
  // whoever finds more than it wrote itself copies first.
  uint32_t filled() const { return filled_; }
  void set_filled(uint32_t tokens) { filled_ = tokens; }
  // How many of the shares are cached nodes'. Belongs to the engine thread.
  uint32_t cached_shares() const { return cached_shares_; }
  void set_cached_shares(uint32_t shares) { cached_shares_ = shares; }

 private:
  friend class BlockPool;
  friend class BlockRef;
  Block() = default;

  BlockPool* pool_ = nullptr;
  PoolSlots* slots_ = nullptr;
  const BlockGeometry* geometry_ = nullptr;
  std::byte* data_ = nullptr;
  uint32_t chunk_ = 0;
  uint32_t filled_ = 0;
  uint32_t cached_shares_ = 0;
  GroupIndex group_ = 0;
  std::atomic<uint32_t> shares_{0};
};

// A share of a block; empty by default.
//
// Threads: different BlockRefs of one block may be used by different threads.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(const BlockRef& other);
  BlockRef(BlockRef&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return block_ != nullptr; }
  Block* operator->() const { return block_; }
  Block* get() const { return block_; }
  // How many there are, this one included. Exact only for a thread that knows
  // that no other thread can be copying one; otherwise it may be less already.
  uint32_t shares() const;
  bool unique() const { return shares() == 1; }
  friend bool operator==(const BlockRef&, const BlockRef&) = default;

 private:
  friend class BlockPool;
  explicit BlockRef(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

// Threads: any. Must outlive every BlockRef.
class BlockPool {
 public:
  // Indexed by GroupIndex.
  explicit BlockPool(std::vector<BySpan<BlockGeometry>> geometries);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A slot for the block that begins at `start`, with unspecified contents and
  // filled() == 0.
  // Errors: kResourceExhausted when the system gives no more memory.
  absl::StatusOr<BlockRef> Allocate(GroupIndex group, TokenPos start);

  // Of the group's block that begins at `start`.
  const BlockGeometry& geometry(GroupIndex group, TokenPos start) const {
    return geometries_[group].AtStart(start, BlockTokens(group));
  }
  size_t num_groups() const { return geometries_.size(); }

  // Bytes of slots in use, by anybody: of all groups, and of one.
  size_t used_bytes() const { return used_bytes_.load(); }
  size_t used_bytes(GroupIndex group) const { return group_bytes_[group]; }
  // Bytes of mapped chunks; the rest beyond used_bytes() waits for reuse.
  size_t mapped_bytes() const { return mapped_bytes_.load(); }

 private:
  friend class BlockRef;
  friend struct PoolSlots;
  struct Chunk;
  uint32_t BlockTokens(GroupIndex group) const {
    return geometries_[group].rest.block_tokens();
  }
  static std::unique_ptr<PoolSlots> MakeSlots(GroupIndex group,
                                              const BlockGeometry& geometry);
  // Takes a chunk without a slot in use out of the slots, unless it becomes the
  // spare one.
  std::unique_ptr<Chunk> Retire(PoolSlots& slots, Chunk& chunk)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::unique_ptr<Chunk> MapChunk(PoolSlots& slots);
  BlockRef TakeSlot(PoolSlots& slots) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(Block* block);

  const std::vector<BySpan<BlockGeometry>> geometries_;
  Mutex mutex_;
  // By group.
  std::vector<BySpan<std::unique_ptr<PoolSlots>>> slots_
      ABSL_GUARDED_BY(mutex_);
  // Kept mapped although nothing in it is in use, so that use which goes to and
  // fro across a chunk's edge does not map and unmap it each time.
  Chunk* spare_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Free slots that still hold memory of the system.
  size_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<size_t> used_bytes_{0};
  std::vector<std::atomic<size_t>> group_bytes_;
  std::atomic<size_t> mapped_bytes_{0};
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_BLOCK_POOL_H_
