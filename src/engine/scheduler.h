// The requests from their arrival to their last token: who has blocks, and
// whose tokens the next step computes.
//
// - They get their turn in order of arrival, at most max_batch at once and as
//   many as have room in RAM together.
// - One that begins like another whose prompt is being computed follows it: it
//   takes those blocks when they are there instead of computing them again. If
//   the leader goes away, the first follower takes over from where it got to.
// - Running replies get a token in every step; prompts fill it up
// (step_policy.h)
//   as far as the replies keep their pace (step_pacer.h).
// - When RAM is short, the one that came last is paused: published, and given
//   back its turn when there is room. Nobody fails for it.
//
// Threads: the engine's.
// Not here: threads, calls and flushes (local_engine.h), what is cached
//           (cache/).
#ifndef EVERWARM_ENGINE_SCHEDULER_H_
#define EVERWARM_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/kv_cache.h"
#include "engine/batch.h"
#include "engine/generation.h"
#include "engine/publication_points.h"
#include "engine/reply_endings.h"
#include "engine/shared_prefixes.h"
#include "engine/step_pacer.h"
#include "engine/token_history.h"
#include "models/model.h"

namespace everwarm::engine {

class Scheduler {
 public:
  struct Config {
    // Longest prompt plus reply, in tokens. One request of that length has room
    // in RAM alone; see FittingContext().
    uint32_t context_size = 8192;
    // Requests that have their turn at once.
    uint32_t max_batch = 8;
    // Tokens between two states that a recurrent model leaves on its way; a
    // power of two, or 0: none.
    uint32_t state_every = 512;
    StepPacer::Options pace;
  };
  // All outlive the scheduler.
  struct Parts {
    models::Model* model = nullptr;
    cache::KvCache* cache = nullptr;
    const Clock* clock = nullptr;
    Logger logger;
    // Learns the tokens of finished conversations; may be null.
    TokenHistory* history = nullptr;
  };
  // Since the start.
  struct Counts {
    uint64_t finished = 0;
    uint64_t failed = 0;
    uint64_t cancelled = 0;
    uint64_t paused = 0;
    uint64_t followed = 0;
    uint64_t prompt_tokens = 0;
    uint64_t computed_prompt_tokens = 0;
    uint64_t generated_tokens = 0;
    uint64_t steps = 0;
  };

  Scheduler(const Config& config, Parts parts);

  // How long, up to `context_size`, a request can be that has all the RAM for
  // blocks.
  static uint32_t FittingContext(const cache::KvCache& cache,
                                 uint32_t context_size, uint32_t step_tokens);

  void Add(std::unique_ptr<Generation> generation);
  // Ends those that were cancelled, or all.
  void DropCancelled(bool all);
  // Gives turns, and computes the next step. False when there is nothing to
  // compute now.
  bool Step();

  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  const Counts& counts() const { return counts_; }
  // Those whose tokens are all computed.
  ReplyEndings& endings() { return endings_; }

 private:
  struct Following {
    uint64_t leader = 0;
    // The leader has what the follower needs of it when it is that long.
    TokenPos border = 0;
  };
  // A request and what the scheduler knows of it.
  struct Entry {
    uint64_t arrival = 0;
    std::unique_ptr<Generation> generation;
    std::optional<Following> following;
  };

  void GiveTurns();
  bool HasRoomFor(const Entry& entry) const;
  uint64_t BytesOf(const Entry& entry, size_t others) const;
  void StartFollowers();
  std::optional<Following> Leader(const Entry& entry) const;
  bool StillLeads(const Entry& entry) const;
  void FinishLoads();

  // The next step's tokens of each running one.
  std::vector<uint32_t> Plan();
  void Gather();
  bool MakeRoom(Entry& entry, uint32_t count);
  void Pause(Entry& entry);
  void Compute();
  void TakeResult(const Batch::Part& part, absl::Span<const float> logits);
  std::optional<cache::StateUse> Publication(
      Generation& generation, PublicationPoints::Stage stage) const;
  // It is over: publishes, gives its blocks back, and ends its reply.
  void Settle(Generation& generation);
  // Of `tokens` it says how much is durable.
  void End(const Generation& generation, std::vector<TokenId> tokens);
  void Count(const Generation& generation);
  // Takes those that finished or were paused out of running_.
  void SortOut();

  const Config config_;
  const Parts parts_;
  const TokenPos block_tokens_;
  const PublicationPoints points_;

  // Both in order of arrival.
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;
  uint64_t next_arrival_ = 0;
  SharedPrefixes prefixes_;  // of the running ones
  // Somebody was paused, and nobody has ended since.
  bool crowded_ = false;

  ReplyEndings endings_;
  StepPacer pacer_;
  Batch batch_;
  // The last step: when it began and what it was, until the next one begins.
  struct LastStep {
    Clock::Monotonic began;
    uint32_t replies = 0;
    uint32_t prompt_tokens = 0;
  };
  std::optional<LastStep> last_step_;
  Counts counts_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_SCHEDULER_H_
