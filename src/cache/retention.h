// RAM copies of published blocks: which stay, which go.
//
// Least recently used first. Whoever touches a path touches its leaf first and
// its root last, so that plain order of use lets leaves go before what they
// build on. What a session would go on from stays longer (sessions.h). A copy
// that anybody else has a share of stays.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_RETENTION_H_
#define EVERWARM_CACHE_RETENTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "cache/flush_tracker.h"
#include "cache/parts.h"
#include "cache/stores.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Retention {
 public:
  struct Options {
    uint64_t target_bytes = 0;
    uint64_t hard_cap_bytes = 0;
    // 0: copies do not leave for being idle.
    std::chrono::milliseconds demote_idle{0};
  };
  struct Counters {
    uint64_t demoted = 0;
    uint64_t lost = 0;
  };
  Retention(const Parts& parts, Options options, TokenTree& tree,
            Stores& stores, FlushTracker& flushes)
      : parts_(parts),
        options_(options),
        tree_(tree),
        stores_(stores),
        flushes_(flushes) {}
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

  // The RAM copy from now on, most recently used; replaces a shorter one.
  void Attach(Residency& residency, BlockRef block, uint32_t tokens);
  // Nothing without a RAM copy.
  void Touch(Residency& residency);
  // Nobody counts on the state, reads it or writes it, and no flush waits for
  // it.
  bool MayRetire(Residency& state) const;
  // A state that others stand for: its RAM copy is given up, and what was to be
  // stored of it. Requires: MayRetire(state).
  void Retire(Residency& state);

  // Keeps the budgets when that many bytes more are about to be used.
  void MakeRoom(size_t incoming_bytes);
  // Drops all that nobody uses and that is durable.
  void DemoteAll();
  // Drops what is durable and was not used for long. Cheap; for every turn.
  void DemoteIdle();
  // What is queued to be written goes in the order of use, newest first. As
  // whoever touches a path touches its root last, parents stay before their
  // children.
  void QueueNewestFirst();
  // Shares were given back, or something became durable: a search that found
  // nothing may find something now.
  void NoteChange() { changed_ = true; }

  size_t size() const { return order_.size(); }
  // Of these, states.
  size_t states() const { return states_; }
  const Counters& counters() const { return counters_; }

 private:
  enum class Drop {
    kDurable,
    kClean,  // also what need not become durable
    kAny,
  };
  enum class Whose { kNoSessions, kAnybodys };
  // Walks from the least recently used on while more than `limit` is used:
  // those that are no session's newest state, then all.
  void DropUntil(uint64_t limit, size_t incoming_bytes, Drop what);
  void DropUntil(uint64_t limit, size_t incoming_bytes, Drop what, Whose whose);
  static bool MayDrop(const Residency& residency, Drop what);
  // What a session would go on from: its blocks, and its last states.
  static bool IsOfSession(const Residency& residency);
  static void CountShares(const BlockRef& block, int more);
  void DropCopy(Residency& residency);
  void LetGo(Residency& residency);

  const Parts& parts_;
  const Options options_;
  TokenTree& tree_;
  Stores& stores_;
  FlushTracker& flushes_;
  // Least recently used first.
  ResidencyList order_;
  size_t states_ = 0;
  Counters counters_;
  bool changed_ = true;
  Clock::Monotonic searched_at_{};
  Clock::Monotonic idle_searched_at_{};
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_RETENTION_H_
