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

struct PoolSlots {
  GroupIndex group = 0;
  const BlockGeometry* geometry = nullptr;
  size_t slot_bytes = 0;
  uint32_t slots_per_chunk = 0;
  // Null where a chunk was unmapped.
  std::vector<std::unique_ptr<BlockPool::Chunk>> chunks;
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

std::unique_ptr<PoolSlots> BlockPool::MakeSlots(GroupIndex group,
                                                const BlockGeometry& geometry) {
  auto slots = std::make_unique<PoolSlots>();
  slots->group = group;
  slots->geometry = &geometry;
  slots->slot_bytes = std::max(geometry.slot_bytes(), kSlotAlignment);
  slots->slots_per_chunk = static_cast<uint32_t>(
      std::max<size_t>(1, kChunkBytes / slots->slot_bytes));
  return slots;
}

BlockPool::BlockPool(std::vector<BySpan<BlockGeometry>> geometries)
    : geometries_(std::move(geometries)), group_bytes_(geometries_.size()) {
  for (const BySpan<BlockGeometry>& geometry : geometries_) {
    const auto group = static_cast<GroupIndex>(slots_.size());
    slots_.push_back({geometry.first_spans, MakeSlots(group, geometry.first),
                      MakeSlots(group, geometry.rest)});
  }
}

BlockPool::~BlockPool() = default;

std::unique_ptr<BlockPool::Chunk> BlockPool::MapChunk(PoolSlots& slots) {
  const size_t bytes = slots.slot_bytes * slots.slots_per_chunk;
  std::optional<HugeMemory> memory = HugeMemory::Map(bytes);
  if (!memory.has_value()) {
    return nullptr;
  }
  auto chunk = std::make_unique<Chunk>(*std::move(memory));
  chunk->blocks.reset(new Block[slots.slots_per_chunk]);
  chunk->idle.reserve(slots.slots_per_chunk);
  chunk->empty.reserve(slots.slots_per_chunk);
  // Backwards: the lowest address is handed out first.
  for (uint32_t i = slots.slots_per_chunk; i-- > 0;) {
    Block& block = chunk->blocks[i];
    block.data_ = chunk->memory.data() + i * slots.slot_bytes;
    block.slots_ = &slots;
    block.geometry_ = slots.geometry;
    block.group_ = slots.group;
    chunk->empty.push_back(&block);
  }
  return chunk;
}

BlockRef BlockPool::TakeSlot(PoolSlots& slots) {
  Chunk& chunk = *slots.chunks[*slots.available.begin()];
  if (&chunk == spare_) {
    spare_ = nullptr;
  }
  Block* block = nullptr;
  if (!chunk.idle.empty()) {
    block = chunk.idle.back();
    chunk.idle.pop_back();
    idle_bytes_ -= slots.slot_bytes;
  } else {
    block = chunk.empty.back();
    chunk.empty.pop_back();
  }
  ++chunk.used;
  if (chunk.idle.empty() && chunk.empty.empty()) {
    slots.available.erase(chunk.index);
  }
  block->pool_ = this;
  block->filled_ = 0;
  block->cached_shares_ = 0;
  block->shares_.store(1, std::memory_order_relaxed);
  used_bytes_.fetch_add(slots.slot_bytes);
  group_bytes_[slots.group].fetch_add(slots.slot_bytes);
  return BlockRef(block);
}

absl::StatusOr<BlockRef> BlockPool::Allocate(GroupIndex group, TokenPos start) {
  MutexLock lock(mutex_);
  PoolSlots& slots = *slots_[group].AtStart(start, BlockTokens(group));
  if (slots.available.empty()) {
    std::unique_ptr<Chunk> chunk = MapChunk(slots);
    if (chunk == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the system gives no memory for another chunk of ",
          slots.slot_bytes * slots.slots_per_chunk,
          " bytes; mapped already: ", mapped_bytes_.load(), " bytes"));
    }
    mapped_bytes_.fetch_add(chunk->memory.size());
    if (slots.holes.empty()) {
      slots.holes.push_back(static_cast<uint32_t>(slots.chunks.size()));
      slots.chunks.emplace_back();
    }
    chunk->index = slots.holes.back();
    slots.holes.pop_back();
    for (uint32_t i = 0; i < slots.slots_per_chunk; ++i) {
      chunk->blocks[i].chunk_ = chunk->index;
    }
    slots.available.insert(chunk->index);
    slots.chunks[chunk->index] = std::move(chunk);
  }
  return TakeSlot(slots);
}

std::unique_ptr<BlockPool::Chunk> BlockPool::Retire(PoolSlots& slots,
                                                    Chunk& chunk) {
  if (spare_ == nullptr) {
    spare_ = &chunk;
    return nullptr;
  }
  idle_bytes_ -= chunk.idle.size() * slots.slot_bytes;
  mapped_bytes_.fetch_sub(chunk.memory.size());
  slots.available.erase(chunk.index);
  slots.holes.push_back(chunk.index);
  return std::move(slots.chunks[chunk.index]);
}

void BlockPool::Free(Block* block) {
  std::unique_ptr<Chunk> unused;  // Unmapped after the lock is released.
  mutex_.Lock();
  PoolSlots& slots = *block->slots_;
  Chunk& chunk = *slots.chunks[block->chunk_];
  const bool give_back =
      chunk.used > 1 && idle_bytes_ + slots.slot_bytes > kMaxIdleBytes;
  if (give_back) {
    // The slot is still in use as far as the pool knows: nobody takes it.
    mutex_.Unlock();
    madvise(block->data_, slots.slot_bytes, MADV_DONTNEED);
    mutex_.Lock();
  }
  if (give_back) {
    chunk.empty.push_back(block);
  } else {
    chunk.idle.push_back(block);
    idle_bytes_ += slots.slot_bytes;
  }
  if (chunk.idle.size() + chunk.empty.size() == 1) {
    slots.available.insert(chunk.index);
  }
  --chunk.used;
  used_bytes_.fetch_sub(slots.slot_bytes);
  group_bytes_[slots.group].fetch_sub(slots.slot_bytes);
  if (chunk.used == 0) {
    unused = Retire(slots, chunk);
  }
  mutex_.Unlock();
}

}  // namespace everwarm::cache
