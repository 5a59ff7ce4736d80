// How a sequence gets what is known of its prompt.
//
// A plan is made over all that is in RAM, on the tier or on its way: the resume
// point, and the blocks and states needed for it. What is in RAM is lent at
// once. Each read that fails takes its block out of the picture, and the plan
// is made again; where reads do not come at all, it is made of what is in RAM.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_TAKING_H_
#define EVERWARM_CACHE_TAKING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cache/loads.h"
#include "cache/parts.h"
#include "cache/resume.h"
#include "cache/retention.h"
#include "cache/sequence_state.h"
#include "cache/tier_copies.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

// What a sequence is taken for.
enum class Purpose : uint8_t {
  kRequest,
  kPreload,  // KvCache::Preload()
};

// A sequence whose blocks are on their way.
struct Waiting {
  // Where one group's block of a span comes from: mostly the node of exactly
  // that span, but a sibling with the same first tokens serves as well. Or a
  // state inside the span.
  struct Source {
    // Its node is pinned, or its place is kept.
    Residency* residency = nullptr;
    // How many of that node's tokens are the prompt's; all of a state's.
    uint32_t common = 0;
    // Of the block in the sequence's table, the tokens that are good.
    uint32_t held = 0;
  };
  struct Span {
    TokenPos start = 0;
    // How many of the prompt's tokens here are known.
    uint32_t matched = 0;
    bool from_tier = false;
    // Per group; of kRecurrent ones nothing ever comes.
    std::vector<Source> sources;
    // Of kRecurrent groups, those that the prompt passes.
    std::vector<Source> states;
  };
  Purpose purpose = Purpose::kRequest;
  std::vector<TokenId> prompt;
  std::vector<Span> spans;
  // Of the plan; only ever gets shorter.
  TokenPos resume_point = 0;
  // The reads that the plan waits for.
  std::vector<Load*> loads;
  // The tier does not answer: only what is in RAM counts.
  bool without_tier = false;
  // Not to be read: there was no slot.
  absl::flat_hash_set<const Residency*> unreadable;
};

class Taking {
 public:
  struct Counters {
    uint64_t takes = 0;
    uint64_t hits = 0;
    uint64_t tokens_asked = 0;
    uint64_t tokens_from_ram = 0;
    uint64_t tokens_from_tier = 0;
    uint64_t preloaded_tokens = 0;
    uint64_t given_up = 0;
  };
  Taking(const Parts& parts, TokenTree& tree, TierCopies& copies, Loads& loads,
         Retention& retention)
      : parts_(parts),
        tree_(tree),
        copies_(copies),
        loads_(loads),
        retention_(retention) {}
  Taking(const Taking&) = delete;
  Taking& operator=(const Taking&) = delete;

  // `sequence` is new and has its root.
  void Begin(SequenceState& sequence, absl::Span<const TokenId> prompt,
             Purpose purpose);
  // It ends, ready or not; nothing waits for it any more.
  void Abandon(SequenceState& sequence);

  void OnLoaded(const BlockKey& key, const BlockRef& block);
  void OnLoadFailed(const BlockKey& key, const absl::Status& status);
  // Requests that wait for reads go on with what has come. The reads go on, for
  // whoever asks later.
  void GiveUpReads();

  const Counters& counters() const { return counters_; }

 private:
  void Walk(Waiting& waiting, const NodeId& root, TokenPos* matched);
  // The sources of a span; `exact` is its node, or null. No tokens matched if
  // nothing is known.
  Waiting::Span FindSources(const Node* parent, Node* exact,
                            absl::Span<const TokenId> span) const;
  bool HasBlocks(size_t group) const {
    return parts_.layout.groups[group].kind != GroupKind::kRecurrent;
  }
  // Tokens of the source that are there or can be.
  static uint32_t Covered(const Waiting& waiting,
                          const Waiting::Source& source);
  TokenPos ResumePoint(const Waiting& waiting, TokenPos limit) const;

  // Makes the plan and acts on it; the sequence may be ready afterwards.
  void Plan(SequenceState& sequence, TokenPos limit);
  // What a plan needs from the tier.
  struct Reads {
    std::vector<Residency*> residencies;
    std::vector<Load::Waiter> waiters;  // One for each.
  };
  // Lends what RAM has, gives back what is not needed, lists what is to be
  // read.
  Reads Lend(SequenceState& sequence);
  void LendBlocks(SequenceState& sequence, Reads& reads);
  void LendStates(SequenceState& sequence, Reads& reads);
  // False when a block turned out not to be readable.
  bool Read(SequenceState& sequence);
  void LeaveLoads(SequenceState& sequence);
  void Finish(SequenceState& sequence);
  void Count(const Waiting& waiting, const Reuse& reuse);
  void TouchPath(const Waiting& waiting);
  void UnpinSources(Waiting& waiting);

  const Parts& parts_;
  TokenTree& tree_;
  TierCopies& copies_;
  Loads& loads_;
  Retention& retention_;
  Counters counters_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_TAKING_H_
