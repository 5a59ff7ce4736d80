// A sequence from within: its tokens and the block tables of its groups.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_SEQUENCE_STATE_H_
#define EVERWARM_CACHE_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/block_pool.h"
#include "cache/kv_cache.h"
#include "cache/layer_group.h"
#include "cache/session_record.h"

namespace everwarm::cache {

struct Waiting;
class SequenceState;

// Hears of the end of a sequence.
class SequenceOwner {
 public:
  virtual ~SequenceOwner() = default;
  virtual void Closed(SequenceState& sequence) = 0;
};

// One group's blocks by span index; empty where released or never there. Of a
// kRecurrent group it has one place: a state at the sequence's length. With a
// filled end of 0 it is the sequence's own, which goes on in it; else others
// know it, and it is copied first.
class BlockTable {
 public:
  void Resize(size_t spans) {
    blocks_.resize(spans);
    slots_.resize(spans);
  }
  void Set(size_t span, BlockRef block) {
    slots_[span] = block ? block->data() : nullptr;
    blocks_[span] = std::move(block);
  }
  const BlockRef& operator[](size_t span) const { return blocks_[span]; }
  size_t size() const { return blocks_.size(); }
  absl::Span<std::byte* const> slots() const { return slots_; }

  // Everything before this span has been released.
  size_t released = 0;

 private:
  std::vector<BlockRef> blocks_;
  std::vector<std::byte*> slots_;
};

class SequenceState {
 public:
  SequenceState(const CacheLayout& layout, SequenceOwner* owner);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  // A slot that Reserve() has to allocate. copy_tokens > 0: of a tail that
  // cannot be extended in place.
  struct Need {
    GroupIndex group = 0;
    uint32_t span = 0;
    uint32_t copy_tokens = 0;
  };
  // What room for `count` more tokens takes.
  std::vector<Need> Needs(TokenPos count) const;
  // Whether the states in the tables are those of the sequence's length. They
  // are not while somebody may be writing behind it.
  bool StatesAreCurrent() const { return claimed_ == 0; }
  // Puts the slots, one per need, into the tables and claims the room.
  void Apply(absl::Span<const Need> needs, std::vector<BlockRef> slots,
             TokenPos count);

  // Releases what no later position sees.
  void Append(absl::Span<const TokenId> more);

  // The last tokens.size() % block_tokens tokens of the last block.
  uint32_t tail_tokens() const {
    return static_cast<uint32_t>(tokens.size() % layout.block_tokens);
  }

  // Copies: they outlive the cache.
  const CacheLayout layout;
  SequenceOwner* owner;
  NodeId root;
  // If it has one.
  std::optional<SessionId> session;
  std::vector<TokenId> tokens;
  std::vector<BlockTable> tables;
  Reuse reuse;
  // While blocks are on their way; taking.h.
  std::unique_ptr<Waiting> waiting;
  // Replaced by equal blocks of the tree; their addresses are still promised.
  std::vector<BlockRef> retired;

 private:
  // The filled end of the blocks with room reserved is where this sequence may
  // write up to, or, after it gives up its claim, what it has written.
  void SetFilled(TokenPos end);
  bool MayExtend(const BlockRef& tail, uint32_t own_tokens) const;
  void ReleaseUnseen();

  // What the last Reserve() made room for, until Append().
  TokenPos claimed_ = 0;
};

struct Sequence::State {
  State(const CacheLayout& layout, SequenceOwner* owner)
      : sequence(layout, owner) {}
  SequenceState sequence;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_SEQUENCE_STATE_H_
