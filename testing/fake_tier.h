// A tier in memory that does only what the test says, when the test says it,
// and that distrusts whoever uses it.
#ifndef EVERWARM_TESTING_FAKE_TIER_H_
#define EVERWARM_TESTING_FAKE_TIER_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cache/tier.h"

namespace everwarm::cache {

// Threads: one. Outlives caches: what is on the "disk" is there for the next.
class FakeTier final : public Tier {
 public:
  struct Entry {
    BlockIdentity identity;
    // The block's tokens without padding.
    std::vector<std::byte> packed;
    uint64_t touched = 0;
  };
  // Whether these bytes are what a block of that identity holds.
  using Verifier = std::function<bool(const BlockIdentity&,
                                      const std::vector<std::byte>& packed)>;

  explicit FakeTier(BlockPool* pool) : pool_(pool) {}

  void set_verifier(Verifier verifier) { verifier_ = std::move(verifier); }
  void set_enabled(bool enabled) { enabled_ = enabled; }
  // Store() is refused while this many wait.
  void set_max_pending_stores(size_t stores) { max_pending_stores_ = stores; }
  // Store() gives this instead of taking the request.
  void set_store_refusal(absl::Status status) { refusal_ = std::move(status); }

  // The oldest `count` queued writes or reads end.
  size_t CompleteStores(size_t count = kAll);
  size_t FailStores(absl::Status status, size_t count = kAll);
  size_t CompleteLoads(size_t count = kAll);
  // The entries are gone with it.
  size_t FailLoads(absl::Status status, size_t count = kAll);
  // As if evicted for the cap.
  void Drop(BlockKey key);
  // As if somebody had removed its file.
  void Lose(BlockKey key);
  // A new process: nothing is queued, nobody has been told anything.
  void Restart();
  // What a start-up scan finds, in no particular order.
  std::vector<TierEntry> Scan() const;

  const absl::flat_hash_map<BlockKey, Entry>& disk() const { return disk_; }
  const std::deque<StoreRequest>& stores() const { return stores_; }
  const std::deque<LoadRequest>& loads() const { return loads_; }
  const std::vector<BlockKey>& touched() const { return touched_; }
  const std::vector<BlockKey>& removed() const { return removed_; }
  // What was wrong with what it was asked for.
  const std::vector<std::string>& problems() const { return problems_; }

  absl::Status Store(StoreRequest request) override;
  // All that were not completed: none has begun.
  std::vector<BlockKey> TakeBackStores() override;
  void Load(LoadRequest request) override;
  void Remove(const BlockKey& key) override;
  void Touch(absl::Span<const BlockKey> keys) override;
  std::vector<TierEvent> TakeEvents() override {
    return std::exchange(events_, {});
  }
  void SetWakeUp(std::function<void()>) override {}
  TierStats stats() const override;

 private:
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  void CheckIdentity(const BlockIdentity& identity);
  bool CoveredByLonger(const BlockIdentity& identity) const;
  void Problem(std::string what) { problems_.push_back(std::move(what)); }

  BlockPool* const pool_;
  Verifier verifier_;
  bool enabled_ = true;
  size_t max_pending_stores_ = kAll;
  absl::Status refusal_;
  std::deque<StoreRequest> stores_;
  std::deque<LoadRequest> loads_;
  absl::flat_hash_map<BlockKey, Entry> disk_;
  std::vector<TierEvent> events_;
  std::vector<BlockKey> touched_;
  std::vector<BlockKey> removed_;
  std::vector<std::string> problems_;
  uint64_t now_ = 0;
};

inline size_t FakeTier::CompleteStores(size_t count) {
  size_t done = 0;
  for (; done < count && !stores_.empty(); ++done) {
    const StoreRequest request = std::move(stores_.front());
    stores_.pop_front();
    const BlockGeometry& geometry = request.block->geometry();
    const uint32_t tokens =
        static_cast<uint32_t>(request.identity.tokens.size());
    Entry entry{request.identity, {}, ++now_};
    entry.packed.resize(geometry.PayloadBytes(tokens));
    geometry.Pack(request.block->data(), tokens, entry.packed.data());
    if (verifier_ && !verifier_(entry.identity, entry.packed)) {
      Problem("stored bytes are not those of " + entry.identity.key.node.hex());
    }
    events_.push_back(StoredEvent{entry.identity.key, entry.packed.size()});
    disk_[entry.identity.key] = std::move(entry);
  }
  return done;
}

inline size_t FakeTier::FailStores(absl::Status status, size_t count) {
  size_t done = 0;
  for (; done < count && !stores_.empty(); ++done) {
    events_.push_back(StoreFailedEvent{stores_.front().identity.key, status});
    stores_.pop_front();
  }
  return done;
}

inline size_t FakeTier::CompleteLoads(size_t count) {
  size_t done = 0;
  for (; done < count && !loads_.empty(); ++done) {
    LoadRequest request = std::move(loads_.front());
    loads_.pop_front();
    const BlockKey key = request.identity.key;
    const auto found = disk_.find(key);
    if (found == disk_.end()) {
      events_.push_back(LoadFailedEvent{key, absl::NotFoundError("gone")});
      continue;
    }
    if (found->second.identity.tokens != request.identity.tokens) {
      Problem("asked to read other tokens than were stored");
    }
    request.block->geometry().Unpack(
        found->second.packed.data(),
        static_cast<uint32_t>(request.identity.tokens.size()),
        request.block->data());
    events_.push_back(LoadedEvent{key, std::move(request.block)});
  }
  return done;
}

inline size_t FakeTier::FailLoads(absl::Status status, size_t count) {
  size_t done = 0;
  for (; done < count && !loads_.empty(); ++done) {
    const BlockKey key = loads_.front().identity.key;
    loads_.pop_front();
    disk_.erase(key);
    events_.push_back(LoadFailedEvent{key, status});
  }
  return done;
}

inline void FakeTier::Drop(BlockKey key) {
  if (disk_.erase(key) > 0) {
    events_.push_back(DroppedEvent{key});
  }
}

inline void FakeTier::Lose(BlockKey key) {
  if (disk_.erase(key) > 0) {
    events_.push_back(DroppedEvent{key, DropReason::kLost});
  }
}

inline void FakeTier::Restart() {
  stores_.clear();
  loads_.clear();
  events_.clear();
}

inline std::vector<TierEntry> FakeTier::Scan() const {
  std::vector<TierEntry> entries;
  for (const auto& [key, entry] : disk_) {
    entries.push_back({entry.identity,
                       Clock::Wall(std::chrono::seconds(entry.touched)),
                       entry.packed.size()});
  }
  return entries;
}

inline absl::Status FakeTier::Store(StoreRequest request) {
  CheckIdentity(request.identity);
  if (request.block->filled() < request.identity.tokens.size()) {
    Problem("asked to store more tokens than the block holds");
  }
  if (!refusal_.ok()) {
    return refusal_;
  }
  if (stores_.size() >= max_pending_stores_) {
    return absl::ResourceExhaustedError("the queue is full");
  }
  if (disk_.contains(request.identity.key)) {
    Problem("asked to store what is durable");
  }
  for (const StoreRequest& queued : stores_) {
    if (queued.identity.key == request.identity.key) {
      Problem("asked to store what is queued");
    }
  }
  stores_.push_back(std::move(request));
  return absl::OkStatus();
}

inline std::vector<BlockKey> FakeTier::TakeBackStores() {
  std::vector<BlockKey> keys;
  for (const StoreRequest& request : stores_) {
    keys.push_back(request.identity.key);
  }
  stores_.clear();
  return keys;
}

inline void FakeTier::Load(LoadRequest request) {
  CheckIdentity(request.identity);
  if (!request.block.unique()) {
    Problem("asked to read into a slot that somebody else sees");
  }
  for (const LoadRequest& queued : loads_) {
    if (queued.identity.key == request.identity.key) {
      Problem("asked to read a block twice at the same time");
    }
  }
  loads_.push_back(std::move(request));
}

inline void FakeTier::Remove(const BlockKey& key) {
  removed_.push_back(key);
  const auto found = disk_.find(key);
  if (found == disk_.end()) {
    Problem("asked to remove what is not there");
    return;
  }
  if (!pool_->geometry(key.group, 0).is_state() &&
      !CoveredByLonger(found->second.identity)) {
    Problem("asked to remove what nothing longer replaces");
  }
  disk_.erase(found);
}

inline void FakeTier::Touch(absl::Span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    touched_.push_back(key);
    if (const auto found = disk_.find(key); found != disk_.end()) {
      found->second.touched = ++now_;
    }
  }
}

inline TierStats FakeTier::stats() const {
  TierStats stats;
  stats.enabled = enabled_;
  stats.entries = disk_.size();
  stats.pending_stores = stores_.size();
  stats.pending_loads = loads_.size();
  return stats;
}

inline void FakeTier::CheckIdentity(const BlockIdentity& identity) {
  size_t block_tokens = 1;
  for (size_t g = 0; g < pool_->num_groups(); ++g) {
    block_tokens = std::max<size_t>(
        block_tokens,
        pool_->geometry(static_cast<GroupIndex>(g), 0).block_tokens());
  }
  if (identity.tokens.empty() || identity.tokens.size() > block_tokens ||
      identity.start % block_tokens != 0 ||
      (identity.start == 0) != (identity.parent == identity.root) ||
      ChildId(identity.parent, identity.tokens) != identity.key.node) {
    Problem("an identity that contradicts itself");
  }
}

inline bool FakeTier::CoveredByLonger(const BlockIdentity& identity) const {
  return std::any_of(disk_.begin(), disk_.end(), [&](const auto& item) {
    const BlockIdentity& other = item.second.identity;
    return other.key.group == identity.key.group &&
           other.parent == identity.parent &&
           other.tokens.size() > identity.tokens.size() &&
           std::equal(identity.tokens.begin(), identity.tokens.end(),
                      other.tokens.begin());
  });
}

}  // namespace everwarm::cache

#endif  // EVERWARM_TESTING_FAKE_TIER_H_
