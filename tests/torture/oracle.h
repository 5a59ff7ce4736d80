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
  void OnRemove(const BlockKey& key) { durable_.erase(key); }
  void OnEvent(const cache::TierEvent& event) {
    if (const auto* stored = std::get_if<cache::StoredEvent>(&event)) {
      durable_.insert_or_assign(stored->key, asked_.at(stored->key));
    } else if (const auto* dropped = std::get_if<cache::DroppedEvent>(&event)) {
      Forgive(dropped->key);
    } else if (const auto* failed =
                   std::get_if<cache::LoadFailedEvent>(&event)) {
      OnLoadFailed(*failed);
    }
  }
  // What a scan has found, and whoever asks will be told is durable.
  void OnAdopted(const cache::BlockIdentity& identity) {
    durable_.insert_or_assign(identity.key, identity);
  }
  // A dead disk reads nothing; what it has is there all the same.
  void set_disk_alive(std::function<bool()> alive) {
    disk_alive_ = std::move(alive);
  }
  // The test itself has taken it away, or the cap has.
  void Forgive(const BlockKey& key) {
    forgiven_ += static_cast<uint64_t>(durable_.erase(key));
  }

  // By key, what must be there after any crash.
  const absl::flat_hash_map<BlockKey, cache::BlockIdentity>& durable() const {
    return durable_;
  }
  std::vector<const cache::BlockIdentity*> DurableBlocks() const {
    std::vector<const cache::BlockIdentity*> blocks;
    for (const auto& [key, identity] : durable_) {
      blocks.push_back(&identity);
    }
    return blocks;
  }
  // Durable blocks that are gone for a reason.
  uint64_t forgiven() const { return forgiven_; }
  // Durable blocks that could not be read.
  std::vector<absl::Status> TakeFailedLoads() {
    return std::exchange(failed_loads_, {});
  }

 private:
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
  absl::flat_hash_map<BlockKey, cache::BlockIdentity> asked_;
  absl::flat_hash_map<BlockKey, cache::BlockIdentity> durable_;
  uint64_t forgiven_ = 0;
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
