// What is to be made durable: queued, handed to the tier, failed and waiting.
//
// A residency is in at most one of these at a time; while a write runs, a
// longer version of the same block waits for it to end.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_STORES_H_
#define EVERWARM_CACHE_STORES_H_

#include <chrono>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/adoption.h"
#include "cache/flush_tracker.h"
#include "cache/parts.h"
#include "cache/tier_copies.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Stores {
 public:
  struct Options {
    std::chrono::milliseconds retry{0};
  };
  Stores(const Parts& parts, Options options, TokenTree& tree,
         TierCopies& copies, Adoption& adoption, FlushTracker& flushes)
      : parts_(parts),
        options_(options),
        tree_(tree),
        copies_(copies),
        adoption_(adoption),
        flushes_(flushes) {}
  Stores(const Stores&) = delete;
  Stores& operator=(const Stores&) = delete;

  // Queues the RAM copy unless it is durable or on its way already. Callers go
  // down a path, so that parents are written first.
  void MarkDirty(Residency& residency);
  // The RAM copy goes: it is not to be written any more.
  // Requires: no write of it runs.
  void Forget(Residency& residency);

  // Behind all else that is queued. Nothing unless it is queued itself.
  void PutLast(Residency& residency);

  // Queues again what the tier has not begun, so that it can go in another
  // order.
  void TakeBack();
  // Hands what is queued to the tier, as far as it takes it.
  void Pump();
  // Queues what failed long enough ago.
  void QueueDue();
  // Queues what failed, however short ago.
  void QueueFailed();
  // Queues what failed, and lets a flush wait for all that is not durable.
  void QueueAll(uint64_t ticket);

  // The tier's answers.
  void OnStored(const BlockKey& key);
  void OnFailed(const BlockKey& key, const absl::Status& status);

  size_t size() const {
    return queued_.size() + running_.size() + waiting_.size();
  }

 private:
  ResidencyList& list(StoreState state);
  void Move(Residency& residency, StoreState to);
  // True when the block need not be handed over, or not now.
  bool Spare(Residency& residency, const BlockIdentity& identity);
  void Succeed(Residency& residency);
  void Fail(Residency& residency, const absl::Status& status);

  const Parts& parts_;
  const Options options_;
  TokenTree& tree_;
  TierCopies& copies_;
  Adoption& adoption_;
  FlushTracker& flushes_;
  ResidencyList queued_;
  ResidencyList running_;
  // In the order in which they are due.
  ResidencyList waiting_;
  absl::flat_hash_map<BlockKey, Residency*> running_by_key_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_STORES_H_
