// Flushes: which writes each of them waits for, and what became of them.
//
// Also keeps the books of what is missing: published, lost from RAM before it
// was durable, and not made good since. A later publication of the same tokens
// makes it good.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_FLUSH_TRACKER_H_
#define EVERWARM_CACHE_FLUSH_TRACKER_H_

#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "cache/kv_cache.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class FlushTracker {
 public:
  explicit FlushTracker(TokenTree& tree) : tree_(tree) {}
  FlushTracker(const FlushTracker&) = delete;
  FlushTracker& operator=(const FlushTracker&) = delete;

  uint64_t Begin() { return Open().first; }
  // The flush waits for this residency's RAM copy to be durable, or for one
  // attempt that begins from now on to fail.
  void Await(uint64_t ticket, Residency& residency);

  // Whether any flush waits for it.
  bool awaited(Residency& residency) const;

  // What stores.h reports.
  void OnAttempt(Residency& residency);
  void OnStored(Residency& residency, uint32_t tokens);
  // True when some flush has not had an attempt of its own yet.
  bool OnFailed(Residency& residency);

  // Its RAM copy goes although it was not durable.
  void OnLost(Residency& residency);
  // It is given up on purpose: nobody waits for it or misses it.
  void OnRetired(Residency& residency);
  // A RAM or a durable copy of that many tokens is there.
  void OnPresent(Residency& residency, uint32_t tokens);

  bool settled(uint64_t ticket) const;
  bool known(uint64_t ticket) const { return tickets_.contains(ticket); }
  void Forget(uint64_t ticket) { tickets_.erase(ticket); }

  // The counts of a flush so far; of nothing for an unknown ticket. Fills in
  // all but no_tier, entries and longest_durable_prefix.
  FlushReport Report(uint64_t ticket, const BlockPool& pool) const;

 private:
  struct Awaited {
    uint32_t tokens = 0;
    // An attempt began after the flush did.
    bool tried = false;
  };
  struct Ticket {
    absl::flat_hash_map<Residency*, Awaited> awaited;
    uint64_t flushed = 0;
    uint64_t failed = 0;
    uint64_t dropped = 0;
  };
  std::pair<uint64_t, Ticket*> Open();
  void MarkMissing(Residency& residency, uint32_t tokens);
  void ClearMissing(Residency& residency);

  TokenTree& tree_;
  std::map<uint64_t, Ticket> tickets_;
  uint64_t last_ticket_ = 0;
  ResidencyList missing_;
  // Of those whose place in the tree was given up: they stay missing.
  uint64_t forgotten_missing_ = 0;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_FLUSH_TRACKER_H_
