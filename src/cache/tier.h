// Where blocks go when they leave RAM, and come back from: the cold side of the
// cache, seen from the cache. The store implements it over files; NullTier is a
// cache without one; tests have one of their own.
//
// Messages are owned values. The cache asks and later finds events; nobody
// calls back into it. No call blocks on a disk.
#ifndef EVERWARM_CACHE_TIER_H_
#define EVERWARM_CACHE_TIER_H_

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cache/block_pool.h"

namespace everwarm::cache {

// What a block is, wherever its bytes are. With `parent` it can be checked
// without trusting a hash: the tokens are here.
struct BlockIdentity {
  BlockKey key;
  NodeId parent;
  // Root of the tree: stands for fingerprint and namespace.
  NodeId root;
  // Position of the first token; a multiple of the block size.
  TokenPos start = 0;
  // The span's tokens; fewer than the block size for a tail.
  std::vector<TokenId> tokens;
};

// An entry that a start-up scan found.
struct TierEntry {
  BlockIdentity identity;
  Clock::Wall last_used;
  // What it takes on the disk.
  uint64_t bytes = 0;
};

struct StoreRequest {
  BlockIdentity identity;
  // Its first identity.tokens.size() tokens are final; behind them the engine
  // may be appending.
  BlockRef block;
};

struct LoadRequest {
  // What must be found in the file, token by token.
  BlockIdentity identity;
  // A slot nobody else sees; filled by the tier.
  BlockRef block;
};

// The block is durable: it survives power loss.
struct StoredEvent {
  BlockKey key;
  uint64_t bytes = 0;
};
// Not stored; the RAM copy is all there is. kResourceExhausted: no room.
struct StoreFailedEvent {
  BlockKey key;
  absl::Status status;
};
// Every byte is in the slot and was verified.
struct LoadedEvent {
  BlockKey key;
  BlockRef block;
};
// kNotFound: gone. kDataLoss: damaged, and set aside. Others: not readable now.
// In every case the entry is no longer there to be loaded.
struct LoadFailedEvent {
  BlockKey key;
  absl::Status status;
};
enum class DropReason : uint8_t {
  // To keep the cap: others were used since.
  kEvicted,
  // Damaged, or somebody removed it: it should be there, and is not.
  kLost,
};
// The tier no longer has it.
struct DroppedEvent {
  BlockKey key;
  DropReason reason = DropReason::kEvicted;
};
using TierEvent = std::variant<StoredEvent, StoreFailedEvent, LoadedEvent,
                               LoadFailedEvent, DroppedEvent>;

struct TierStats {
  bool enabled = false;
  // Durable entries of this fingerprint, and all that counts against the cap.
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t pending_stores = 0;
  uint64_t pending_store_bytes = 0;
  uint64_t pending_loads = 0;
  // Since the start.
  uint64_t stored = 0;
  uint64_t stored_bytes = 0;
  uint64_t failed_stores = 0;
  uint64_t loaded = 0;
  uint64_t loaded_bytes = 0;
  uint64_t failed_loads = 0;
  uint64_t evicted = 0;
  uint64_t damaged = 0;
  // Read again only to look for damage, and how often that could not be read,
  // which says nothing of the block.
  uint64_t scrubbed = 0;
  uint64_t scrubbed_bytes = 0;
  uint64_t scrub_failed = 0;
};

// Threads: all calls from the engine thread, except stats() from any.
class Tier {
 public:
  virtual ~Tier() = default;

  // Queues the block to be made durable. One StoredEvent or StoreFailedEvent
  // follows, unless Remove() of the same key comes first.
  // Errors: kResourceExhausted, the queue is full: ask again after an event.
  //         kUnavailable, there is no tier: nothing will ever be stored.
  virtual absl::Status Store(StoreRequest request) = 0;

  // Gives up stores that have not begun, and says which, so that they can be
  // asked for in another order. No event follows for these.
  virtual std::vector<BlockKey> TakeBackStores() { return {}; }

  // Queues a read straight into the slot. One LoadedEvent or LoadFailedEvent
  // follows.
  virtual void Load(LoadRequest request) = 0;

  // Forgets an entry that something longer replaces. A queued write is not
  // started; one that runs is undone. No event.
  virtual void Remove(const BlockKey& key) = 0;

  // Marks as just used, leaf first.
  virtual void Touch(absl::Span<const BlockKey> keys) = 0;

  // What happened since the last call, in order.
  virtual std::vector<TierEvent> TakeEvents() = 0;

  // Called from any thread after an event was added; it may only wake somebody
  // up. Set once, before the first request.
  virtual void SetWakeUp(std::function<void()> wake_up) = 0;

  virtual TierStats stats() const = 0;
};

// No tier: stores nothing, has nothing.
class NullTier final : public Tier {
 public:
  absl::Status Store(StoreRequest request) override;
  void Load(LoadRequest request) override;
  void Remove(const BlockKey&) override {}
  void Touch(absl::Span<const BlockKey>) override {}
  std::vector<TierEvent> TakeEvents() override;
  void SetWakeUp(std::function<void()>) override {}
  TierStats stats() const override { return {}; }

 private:
  std::vector<TierEvent> events_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_TIER_H_
