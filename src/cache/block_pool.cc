#include "cache/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/huge_memory.h"

namespace everwarm::cache {
namespace {

// Large enough for several huge pages and few mappings, small enough that what
// is mapped and not used stays small beside a model.
constexpr size_t kChunkBytes = size_t{8} << 20;
// Free slots keep their memory up to this much; beyond it they give it back, so
// that scattered free slots do not add up.
constexpr size_t kMaxIdleBytes = size_t{8} << 20;

}  // namespace

struct BlockPool::Chunk {
  explicit Chunk(HugeMemory mapped) : memory(std::move(mapped)) {}

  HugeMemory memory;
  uint32_t index = 0;
  uint32_t used = 0;
  std::unique_ptr<Block[]> blocks;
  // Free slots with memory behind them, and those without.
  std::vector<Block*> idle;
  std::vector<Block*> empty;
};

struct BlockPool::Group {
  GroupIndex index = 0;
  size_t slot_bytes = 0;
  uint32_t slots_per_chunk = 0;
  // Null where a chunk was unmapped.
  std::vector<std::unique_ptr<Chunk>> chunks;
  std::vector<uint32_t> holes;
  // Chunks with a free slot. The lowest is used first, so that the others
  // empty.
  std::set<uint32_t> available;
};

BlockRef::BlockRef(const BlockRef& other) : block_(other.block_) {
  if (block_ != nullptr) {
    block_->shares_.fetch_add(1, std::memory_order_relaxed);
  }
}

BlockRef::~BlockRef() {
  if (block_ != nullptr &&
      block_->shares_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    block_->pool_->Free(block_);
  }
}

uint32_t BlockRef::shares() const {
  return block_ == nullptr ? 0
                           : block_->shares_.load(std::memory_order_acquire);
}

BlockPool::BlockPool(std::vector<BlockGeometry> geometries)
    : geometries_(std::move(geometries)), group_bytes_(geometries_.size()) {
  for (const BlockGeometry& geometry : geometries_) {
    auto group = std::make_unique<Group>();
    group->index = static_cast<GroupIndex>(groups_.size());
    group->slot_bytes = std::max(geometry.slot_bytes(), kSlotAlignment);
    group->slots_per_chunk = static_cast<uint32_t>(
        std::max<size_t>(1, kChunkBytes / group->slot_bytes));
    groups_.push_back(std::move(group));
  }
}

BlockPool::~BlockPool() = default;

std::unique_ptr<BlockPool::Chunk> BlockPool::MapChunk(const Group& group) {
  const size_t bytes = group.slot_bytes * group.slots_per_chunk;
  std::optional<HugeMemory> memory = HugeMemory::Map(bytes);
  if (!memory.has_value()) {
    return nullptr;
  }
  auto chunk = std::make_unique<Chunk>(*std::move(memory));
  chunk->blocks.reset(new Block[group.slots_per_chunk]);
  chunk->idle.reserve(group.slots_per_chunk);
  chunk->empty.reserve(group.slots_per_chunk);
  // Backwards: the lowest address is handed out first.
  for (uint32_t i = group.slots_per_chunk; i-- > 0;) {
    Block& block = chunk->blocks[i];
    block.data_ = chunk->memory.data() + i * group.slot_bytes;
    block.group_ = group.index;
    chunk->empty.push_back(&block);
  }
  return chunk;
}

BlockRef BlockPool::TakeSlot(Group& group) {
  Chunk& chunk = *group.chunks[*group.available.begin()];
  if (&chunk == spare_) {
    spare_ = nullptr;
  }
  Block* block = nullptr;
  if (!chunk.idle.empty()) {
    block = chunk.idle.back();
    chunk.idle.pop_back();
    idle_bytes_ -= group.slot_bytes;
  } else {
    block = chunk.empty.back();
    chunk.empty.pop_back();
  }
  ++chunk.used;
  if (chunk.idle.empty() && chunk.empty.empty()) {
    group.available.erase(chunk.index);
  }
  block->pool_ = this;
  block->filled_ = 0;
  block->cached_shares_ = 0;
  block->shares_.store(1, std::memory_order_relaxed);
  used_bytes_.fetch_add(group.slot_bytes);
  group_bytes_[group.index].fetch_add(group.slot_bytes);
  return BlockRef(block);
}

absl::StatusOr<BlockRef> BlockPool::Allocate(GroupIndex index) {
  MutexLock lock(mutex_);
  Group& group = *groups_[index];
  if (group.available.empty()) {
    std::unique_ptr<Chunk> chunk = MapChunk(group);
    if (chunk == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the system gives no memory for another chunk of ",
          group.slot_bytes * group.slots_per_chunk,
          " bytes; mapped already: ", mapped_bytes_.load(), " bytes"));
    }
    mapped_bytes_.fetch_add(chunk->memory.size());
    if (group.holes.empty()) {
      group.holes.push_back(static_cast<uint32_t>(group.chunks.size()));
      group.chunks.emplace_back();
    }
    chunk->index = group.holes.back();
    group.holes.pop_back();
    for (uint32_t i = 0; i < group.slots_per_chunk; ++i) {
      chunk->blocks[i].chunk_ = chunk->index;
    }
    group.available.insert(chunk->index);
    group.chunks[chunk->index] = std::move(chunk);
  }
  return TakeSlot(group);
}

std::unique_ptr<BlockPool::Chunk> BlockPool::Retire(Group& group,
                                                    Chunk& chunk) {
  if (spare_ == nullptr) {
    spare_ = &chunk;
    return nullptr;
  }
  idle_bytes_ -= chunk.idle.size() * group.slot_bytes;
  mapped_bytes_.fetch_sub(chunk.memory.size());
  group.available.erase(chunk.index);
  group.holes.push_back(chunk.index);
  return std::move(group.chunks[chunk.index]);
}

void BlockPool::Free(Block* block) {
  std::unique_ptr<Chunk> unused;  // Unmapped after the lock is released.
  mutex_.Lock();
  Group& group = *groups_[block->group_];
  Chunk& chunk = *group.chunks[block->chunk_];
  const bool give_back =
      chunk.used > 1 && idle_bytes_ + group.slot_bytes > kMaxIdleBytes;
  if (give_back) {
    // The slot is still in use as far as the pool knows: nobody takes it.
    mutex_.Unlock();
    madvise(block->data_, group.slot_bytes, MADV_DONTNEED);
    mutex_.Lock();
  }
  if (give_back) {
    chunk.empty.push_back(block);
  } else {
    chunk.idle.push_back(block);
    idle_bytes_ += group.slot_bytes;
  }
  if (chunk.idle.size() + chunk.empty.size() == 1) {
    group.available.insert(chunk.index);
  }
  --chunk.used;
  used_bytes_.fetch_sub(group.slot_bytes);
  group_bytes_[group.index].fetch_sub(group.slot_bytes);
  if (chunk.used == 0) {
    unused = Retire(group, chunk);
  }
  mutex_.Unlock();
}

}  // namespace everwarm::cache
