// Reads from the tier that are on their way, and who waits for each.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_LOADS_H_
#define EVERWARM_CACHE_LOADS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/parts.h"
#include "cache/sequence_state.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

struct Load {
  struct Waiter {
    SequenceState* sequence = nullptr;
    uint32_t span = 0;
  };
  Residency* residency = nullptr;
  // What is read: this many of the node's first tokens.
  uint32_t tokens = 0;
  std::vector<Waiter> waiters;
};

class Loads {
 public:
  Loads(const Parts& parts, TokenTree& tree) : parts_(parts), tree_(tree) {}
  Loads(const Loads&) = delete;
  Loads& operator=(const Loads&) = delete;

  // The read that brings at least `tokens` tokens: a running one, or the tier
  // is asked. Valid until it ends. Requires: a durable copy or a running read
  // is as long as that. Errors: kResourceExhausted, no slot to read into.
  absl::StatusOr<Load*> Join(Residency& residency, uint32_t tokens,
                             Load::Waiter waiter);
  static void Leave(Load& load, const SequenceState& sequence);

  // The read has ended, well or not; null when it is not one of ours. The
  // caller prunes the node.
  std::unique_ptr<Load> End(const BlockKey& key);

  // Reads are on their way, and for so long none has ended. 0: never.
  bool Stalled(std::chrono::nanoseconds patience) const;
  // Those that wait for a read, each once.
  std::vector<SequenceState*> Waiters() const;

 private:
  const Parts& parts_;
  TokenTree& tree_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Load>> loads_;
  // When the last read ended, or the first of these began.
  Clock::Monotonic last_progress_{};
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_LOADS_H_
