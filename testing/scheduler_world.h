// The scheduler without threads: the test says when a step is computed, what
// the disk does and what time it is.
#ifndef EVERWARM_TESTING_SCHEDULER_WORLD_H_
#define EVERWARM_TESTING_SCHEDULER_WORLD_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/reply_channel.h"
#include "engine/scheduler.h"
#include "testing/engine_harness.h"
#include "testing/fake_clock.h"
#include "testing/fake_model.h"
#include "testing/fake_tier.h"

namespace everwarm::engine {

using std::chrono::milliseconds;

inline constexpr uint32_t kBlock = 16;
inline constexpr uint64_t kSlot = 4096;
inline constexpr uint64_t kPlenty = 64 << 20;

// Of the fake model, beside a full one.
struct Groups {
  uint32_t window = 0;  // 0: no window group
  bool states = false;
};

struct WorldOptions {
  Groups groups;
  uint32_t max_batch = 8;
  uint32_t chunk = 64;
  std::chrono::milliseconds max_gap{250};
  uint64_t target_bytes = kPlenty;
  uint64_t hard_cap_bytes = kPlenty;
  uint32_t context_size = 1 << 14;
  uint32_t state_every = 64;
};

// Threads: one.
class World {
 public:
  explicit World(const WorldOptions& options)
      : options_(options),
        model_(kBlock, options.groups.window, options.groups.states),
        pool_(GeometriesOf(model_)),
        tier_(&pool_) {
    Start();
    // A step takes its time.
    model_.on_step = [this](const models::StepInput& input) {
      clock_.Advance(milliseconds(10) + milliseconds(1) * input.rows.size());
      if (on_step) {
        on_step(input);
      }
    };
  }

  Scheduler& scheduler() { return *scheduler_; }
  const Scheduler::Counts& counts() { return scheduler_->counts(); }
  cache::KvCache& cache() { return *cache_; }
  FakeModel& model() { return model_; }
  cache::BlockPool& pool() { return pool_; }
  cache::FakeTier& tier() { return tier_; }
  FakeClock& clock() { return clock_; }

  using Channel = std::shared_ptr<ReplyChannel>;
  Channel Ask(std::vector<TokenId> prompt, uint32_t max_tokens) {
    auto channel = std::make_shared<ReplyChannel>();
    Add(GreedyRequest(std::move(prompt), max_tokens), channel);
    return channel;
  }
  void Add(Request request, const Channel& channel) {
    scheduler_->Add(std::make_unique<Generation>(std::move(request), channel,
                                                 &text_, &clock_));
  }
  // A new process over the same disk. Requires: nobody waits for a reply.
  void Restart() {
    scheduler_.reset();
    cache_.reset();
    tier_.Restart();
    Start();
    cache_->Adopt(tier_.Scan());
  }

  // One turn of the engine's loop, with a disk that is done with all it was
  // given.
  bool Turn() {
    tier_.CompleteLoads();
    if (disk_works) {
      tier_.CompleteStores();
    }
    cache_->Poll();
    scheduler_->DropCancelled(false);
    const bool computed = scheduler_->Step();
    // Nothing can be taken from a disk that has it in its hands.
    EXPECT_LE(pool_.used_bytes(),
              options_.hard_cap_bytes + tier_.stores().size() * kSlot);
    return computed;
  }
  void RunAll() {
    for (int turns = 0; !scheduler_->idle(); ++turns) {
      Turn();
      ASSERT_LT(turns, 100000) << "it does not end";
    }
  }
  static Outcome Read(const Channel& channel) {
    return CollectOutcome([&] { return channel->Next(milliseconds(0)); });
  }
  Outcome Answer(std::vector<TokenId> prompt, uint32_t max_tokens) {
    const Channel channel = Ask(std::move(prompt), max_tokens);
    RunAll();
    return Read(channel);
  }

  std::function<void(const models::StepInput&)> on_step;
  bool disk_works = true;

 private:
  void Start() {
    cache_ = std::make_unique<cache::KvCache>(
        CacheConfigFor(model_, options_.target_bytes, options_.hard_cap_bytes),
        &pool_, &tier_, &clock_, NullLogger());
    scheduler_ = std::make_unique<Scheduler>(
        Scheduler::Config{
            options_.context_size,
            options_.max_batch,
            options_.state_every,
            {.max_gap = options_.max_gap, .max_prompt_tokens = options_.chunk}},
        Scheduler::Parts{&model_, cache_.get(), &clock_, NullLogger()});
  }

  const WorldOptions options_;
  FakeModel model_;
  FakeTokenText text_;
  FakeClock clock_;
  cache::BlockPool pool_;
  cache::FakeTier tier_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
};

// The text of a world that has never seen anything.
inline std::string Cold(const std::vector<TokenId>& prompt, uint32_t max_tokens,
                        const Groups& groups) {
  return World({.groups = groups}).Answer(prompt, max_tokens).text;
}

inline std::vector<TokenId> With(std::vector<TokenId> prefix, size_t more,
                                 TokenId seed) {
  for (size_t i = 0; i < more; ++i) {
    prefix.push_back(static_cast<TokenId>((i * 7 + seed) % kEndToken));
  }
  return prefix;
}

}  // namespace everwarm::engine

#endif  // EVERWARM_TESTING_SCHEDULER_WORLD_H_
