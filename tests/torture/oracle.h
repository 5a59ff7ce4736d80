// What a store has promised to keep, heard by a tier in the middle.
#ifndef EVERWARM_TESTS_TORTURE_ORACLE_H_
#define EVERWARM_TESTS_TORTURE_ORACLE_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/tier.h"

namespace everwarm::torture {

// Threads: one. Outlives every process.
class Oracle {
 public:
  void OnStore(const cache::BlockIdentity& identity) {
    asked_.insert_or_assign(identity.key, identity);
  }
  // The cache needs it no more: nobody may count on it either, now or before.
  void OnRemove(const BlockKey& key) {
    durable_.erase(key);
    forgiven_.erase(key);
  }
  void OnEvent(const cache::TierEvent& event) {
    if (const auto* stored = std::get_if<cache::StoredEvent>(&event)) {
      OnDurable(asked_.at(stored->key));
    } else if (const auto* dropped = std::get_if<cache::DroppedEvent>(&event)) {
      if (durable_.contains(dropped->key) && !may_drop_()) {
        ++dropped_for_nothing_;
      }
      Forgive(dropped->key);
    } else if (const auto* failed =
                   std::get_if<cache::LoadFailedEvent>(&event)) {
      OnLoadFailed(*failed);
    }
  }
  // What a scan has found, and whoever asks will be told is durable.
  void OnAdopted(const cache::BlockIdentity& identity) { OnDurable(identity); }
  // A dead disk reads nothing; what it has is there all the same.
  void set_disk_alive(std::function<bool()> alive) {
    disk_alive_ = std::move(alive);
  }
  // Whether the store can have a reason to drop something that is good.
  void set_may_drop(std::function<bool()> may_drop) {
    may_drop_ = std::move(may_drop);
  }
  // The test itself has taken it away, or the cap has. Until it is durable
  // again it may be there or not.
  void Forgive(const BlockKey& key) {
    const auto found = durable_.find(key);
    if (found != durable_.end()) {
      forgiven_.insert_or_assign(key, std::move(found->second));
      durable_.erase(found);
    }
  }

  // By key, what must be there after any crash.
  const absl::flat_hash_map<BlockKey, cache::BlockIdentity>& durable() const {
    return durable_;
  }
  using Blocks = std::vector<const cache::BlockIdentity*>;
  Blocks DurableBlocks() const { return Append({}, durable_); }
  // What all claims together are about: these, and what is gone for a reason
  // that is not the store's or the cache's. What neither has was never durable.
  Blocks ClaimedBlocks() const { return Append(DurableBlocks(), forgiven_); }
  bool forgives_any() const { return !forgiven_.empty(); }
  // Good blocks that were dropped although nothing called for it.
  uint64_t TakeDroppedForNothing() {
    return std::exchange(dropped_for_nothing_, 0);
  }
  // Durable blocks that could not be read.
  std::vector<absl::Status> TakeFailedLoads() {
    return std::exchange(failed_loads_, {});
  }

 private:
  using ByKey = absl::flat_hash_map<BlockKey, cache::BlockIdentity>;

  static Blocks Append(Blocks blocks, const ByKey& more) {
    for (const auto& [key, identity] : more) {
      blocks.push_back(&identity);
    }
    return blocks;
  }
  void OnDurable(const cache::BlockIdentity& identity) {
    durable_.insert_or_assign(identity.key, identity);
    forgiven_.erase(identity.key);
  }
  void OnLoadFailed(const cache::LoadFailedEvent& event) {
    if (!disk_alive_()) {
      return;
    }
    if (durable_.contains(event.key)) {
      failed_loads_.push_back(event.status);
    }
    Forgive(event.key);
  }

  std::function<bool()> disk_alive_ = [] { return true; };
  std::function<bool()> may_drop_ = [] { return true; };
  ByKey asked_;
  ByKey durable_;
  // Durable once, gone for a reason, and not durable again since.
  ByKey forgiven_;
  uint64_t dropped_for_nothing_ = 0;
  std::vector<absl::Status> failed_loads_;
};

// Passes everything on, and tells the oracle.
class SpyTier final : public cache::Tier {
 public:
  SpyTier(cache::Tier* tier, Oracle* oracle) : tier_(*tier), oracle_(*oracle) {}

  absl::Status Store(cache::StoreRequest request) override {
    oracle_.OnStore(request.identity);
    return tier_.Store(std::move(request));
  }
  std::vector<BlockKey> TakeBackStores() override {
    return tier_.TakeBackStores();
  }
  void Load(cache::LoadRequest request) override {
    tier_.Load(std::move(request));
  }
  void Remove(const BlockKey& key) override {
    oracle_.OnRemove(key);
    tier_.Remove(key);
  }
  void Touch(absl::Span<const BlockKey> keys) override { tier_.Touch(keys); }
  std::vector<cache::TierEvent> TakeEvents() override {
    std::vector<cache::TierEvent> events = tier_.TakeEvents();
    for (const cache::TierEvent& event : events) {
      oracle_.OnEvent(event);
    }
    return events;
  }
  void SetWakeUp(std::function<void()> wake_up) override {
    tier_.SetWakeUp(std::move(wake_up));
  }
  cache::TierStats stats() const override { return tier_.stats(); }

 private:
  cache::Tier& tier_;
  Oracle& oracle_;
};

}  // namespace everwarm::torture

#endif  // EVERWARM_TESTS_TORTURE_ORACLE_H_
