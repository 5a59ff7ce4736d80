// The logical cache: live sequences, RAM and the cold tier as one tree of
// blocks.
//
// A sequence is taken for a prompt: it borrows what the tree has of it, in RAM
// at once and from the tier by reads that run while the engine works for
// others. It appends in place, and publishes what it has so that others find
// it.
//
// Threads:  everything here belongs to the engine thread; stats are copied out.
// Owns:     the token tree and its shares of blocks. The pool and the tier are
//           the caller's and outlive the cache.
// Blocks:   never on a disk.
// Errors:   no failure of the tier reaches a caller: it is a miss, a shorter
//           resume point or "not stored", with one log line and a counter.
// Not here: files (store/), models, prompts as text, threads.
#ifndef EVERWARM_CACHE_KV_CACHE_H_
#define EVERWARM_CACHE_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "cache/block_pool.h"
#include "cache/layer_group.h"
#include "cache/session_record.h"
#include "cache/tier.h"

namespace everwarm::cache {

class KvCache;
class TokenTree;

// Where the reused part of a prompt came from. Tokens.
struct Reuse {
  TokenPos cached = 0;  // = ram + tier
  TokenPos ram = 0;
  TokenPos tier = 0;
  // How far the tree knew the prompt at all; beyond `cached` no group-complete
  // resume point existed, or a read failed.
  TokenPos matched = 0;
};

// What becomes of a sequence's states when it is published. Blocks serve at
// every position that they hold, a state only at its own.
enum class StateUse : uint8_t {
  // They stay the sequence's alone.
  kNone,
  // One of many on the way through something long: it goes when the
  // conversation is far beyond it.
  kPassing,
  // Somebody may well go on from here; kept while there is room.
  kKept,
};

// A running generation: its tokens and one block table per group.
//
// Destroying it gives its shares back; what was published stays in the tree.
class Sequence {
 public:
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // False while blocks are on their way from the tier. KvCache::Poll() makes
  // progress; reads that fail, or do not come, only shorten the sequence.
  bool ready() const;
  // Tokens whose state the block tables hold. Final once ready().
  TokenPos length() const;
  // All of them, from position 0.
  absl::Span<const TokenId> tokens() const;
  const Reuse& reuse() const;

  // Slot addresses by span index, valid until the next call of Reserve(),
  // Append() or the destructor. A window group's entries are null where
  // released. A kRecurrent group has one entry: after Reserve(), the state at
  // length(), all zero at position 0, which the sequence's next step reads and
  // replaces by the one at its own end.
  absl::Span<std::byte* const> blocks(GroupIndex group) const;

 private:
  friend class KvCache;
  struct State;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What a flush can say for itself; DUR-6 of the design's contract.
struct FlushReport {
  uint64_t flushed = 0;  // blocks made durable during the flush
  uint64_t pending = 0;  // blocks still on their way
  uint64_t pending_bytes = 0;
  uint64_t failed = 0;   // writes that failed during the flush
  uint64_t dropped = 0;  // lost from RAM before they were durable
  uint64_t missing = 0;  // published, neither in RAM nor durable
  uint64_t entries = 0;  // durable blocks
  TokenPos longest_durable_prefix = 0;
  // No tier is configured: nothing can be durable.
  bool no_tier = false;

  // All that was published before the flush is durable.
  bool durable() const {
    return !no_tier && pending == 0 && failed == 0 && dropped == 0 &&
           missing == 0;
  }
};

// How far a conversation would be there after a power loss.
struct PrefixDurability {
  // The greatest position from which it could go on.
  TokenPos tokens = 0;
  // A write of one of its blocks is on its way. A failed one that waits for its
  // retry is not.
  bool pending = false;
};

struct CacheStats {
  struct Group {
    std::string name;
    uint64_t ram_used_bytes = 0;
  };
  uint64_t ram_used_bytes = 0;  // all slots, live and cached
  std::vector<Group> groups;    // of these, each layer group's
  uint64_t ram_mapped_bytes = 0;
  uint64_t ram_target_bytes = 0;
  uint64_t ram_hard_cap_bytes = 0;
  uint64_t nodes = 0;
  uint64_t sessions = 0;
  uint64_t cached_blocks_in_ram = 0;  // and states
  uint64_t cached_states_in_ram = 0;
  uint64_t dirty_blocks = 0;  // published, not durable yet
  // Since the start.
  uint64_t takes = 0;
  uint64_t hits = 0;
  uint64_t tokens_asked = 0;
  uint64_t tokens_from_ram = 0;
  uint64_t tokens_from_tier = 0;
  uint64_t preloaded_tokens = 0;
  uint64_t takes_given_up = 0;  // went on without reads that did not come
  uint64_t demoted_blocks = 0;  // left RAM, durable
  uint64_t lost_blocks = 0;     // left RAM, not durable
  uint64_t tail_copies = 0;
  uint64_t state_copies = 0;
  uint64_t published_states = 0;
  uint64_t thinned_states = 0;  // later ones stand for them
  TokenPos longest_durable_prefix = 0;
  // Of all conversations; what they share counts once.
  uint64_t durable_tokens = 0;
};

class KvCache {
 public:
  struct Config {
    Fingerprint fingerprint;
    CacheLayout layout;
    // Soft target for all slots: above it, durable blocks nobody uses leave
    // RAM, least recently used and leaves first. 0: nothing is kept that nobody
    // uses (and what the tier has is read again).
    uint64_t ram_target_bytes = 0;
    // Above it, blocks that nobody uses leave even when they are not durable,
    // and are counted as lost. At least ram_target_bytes. Live sequences are
    // never cut for it; HasRoom() tells when the caller should pause some.
    uint64_t ram_hard_cap_bytes = 0;
    // A failed write is tried again after this.
    std::chrono::milliseconds store_retry{5000};
    // While reads are on their way and none has ended for so long, sequences do
    // not wait for them: what has not come is computed. 0: they always wait.
    std::chrono::milliseconds read_patience{5000};
    // Durable blocks that nobody has used for so long leave RAM. 0: never.
    std::chrono::milliseconds demote_idle{0};
    absl::Status Validate() const;
  };

  // Requires: a valid config; the pool has the layout's geometries, in order.
  KvCache(Config config, BlockPool* pool, Tier* tier, const Clock* clock,
          Logger logger);
  ~KvCache();

  const CacheLayout& layout() const;

  // Takes over what a start-up scan found. Entries may come in any order; those
  // whose parent is unknown wait for it.
  void Adopt(std::vector<TierEntry> entries);

  // A sequence that holds the longest usable prefix of `prompt` in
  // `name_space`, at most prompt.size() - 1 tokens, so that something is left
  // to compute. Requires: prompt is not empty, ids are not negative.
  std::unique_ptr<Sequence> Take(absl::Span<const TokenId> prompt,
                                 std::string_view name_space);

  // As Take(), for nobody: these tokens of a conversation are read into RAM as
  // far as they are known, to the last one. Counts as no use, neither in the
  // counters nor in the tier's order.
  std::unique_ptr<Sequence> Preload(const NodeId& root,
                                    absl::Span<const TokenId> tokens);

  // What is published of it from now on is the newest state of that session:
  // its blocks leave RAM after those of no session. A hint; it changes nothing
  // of what is found. An empty name is none.
  void SetSession(Sequence& sequence, std::string_view name);
  // Its states are like all others from now on. False: there is none of that
  // name.
  bool CloseSession(std::string_view name);
  // From now on, where sessions came to is kept there as well, so that a
  // restart finds it; `known` is what a start-up scan found. Once, after
  // Adopt(); the keeper outlives the cache.
  void KeepSessions(SessionKeeper* keeper, std::vector<SessionEntry> known);

  // Whether `count` more tokens of this sequence leave the blocks of all live
  // sequences short of the hard cap, so that others still become durable. Where
  // not, sequences should be published and destroyed, to be taken again later.
  bool HasRoom(const Sequence& sequence, TokenPos count) const;
  // Blocks of one sequence of that length, in bytes, when steps of
  // `step_tokens` made it; and how much of it another sequence with the same
  // first `common` tokens surely shares.
  uint64_t SequenceBytes(TokenPos length, TokenPos step_tokens) const;
  uint64_t SharedBytes(TokenPos common) const;
  // What HasRoom() keeps all live sequences in.
  uint64_t live_limit_bytes() const;
  uint64_t hard_cap_bytes() const;

  // Makes room for `count` more tokens: allocates blocks, copies a tail that
  // somebody else extended or may still read beyond, makes states the
  // sequence's own. On an error the sequence is as it was.
  // Errors: kResourceExhausted, no memory.
  // Requires: sequence.ready(); no step has failed in room reserved before,
  //           where there are kRecurrent groups.
  absl::Status Reserve(Sequence& sequence, TokenPos count);

  // Their KV has been written at positions length() on: the sequence is longer,
  // and lets go of window blocks that it cannot see from there: less than W and
  // two spans of a group are left.
  // Requires: Reserve(sequence, at least tokens.size()) since the last Append;
  //           with kRecurrent groups, all tokens that were computed.
  void Append(Sequence& sequence, absl::Span<const TokenId> tokens);

  // Makes everything up to length() findable and queues its writes. Cheap where
  // it has been published already. The tail is lent, and so are states: both go
  // on. States are left out after a Reserve() without an Append(), since a step
  // may have failed in them.
  void Publish(Sequence& sequence, StateUse states = StateUse::kKept);

  // Takes the tier's events, retries failed writes, gives up reads that do not
  // come, keeps the budgets.
  void Poll();

  // Begins to make all that is published durable: every dirty block is tried
  // once, also one that waits for its retry. Flushes may overlap.
  uint64_t BeginFlush();
  // The outcome, once everything tried has been settled; nothing before that.
  // After FlushReport was returned, the ticket is forgotten.
  std::optional<FlushReport> FlushOutcome(uint64_t ticket);
  // What a flush would say now (for one that a deadline cuts short).
  FlushReport FlushNow(uint64_t ticket);
  // Nobody will ask for the outcome any more.
  void ForgetFlush(uint64_t ticket);
  // Calls of Publish() so far. While it stays, one flush covers what another
  // would.
  uint64_t publications() const;
  // What waits to be written, also for a retry, goes next, and in this order:
  // the most recently used conversation first, each from its start. For a stop
  // that may not have the time for all.
  void WriteNewestFirst();

  // Of what was published of these tokens. A walk down the path.
  PrefixDurability DurabilityOf(absl::Span<const TokenId> tokens,
                                std::string_view name_space) const;

  // Drops everything that nobody uses and that is durable from RAM.
  void DemoteAll();

  CacheStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_KV_CACHE_H_
