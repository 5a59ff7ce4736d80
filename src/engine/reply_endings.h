// Last events of replies, some of which wait until the conversation is durable.
//
// Threads: the engine's.
#ifndef EVERWARM_ENGINE_REPLY_ENDINGS_H_
#define EVERWARM_ENGINE_REPLY_ENDINGS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/reply_channel.h"

namespace everwarm::engine {

class ReplyEndings {
 public:
  struct Ending {
    std::shared_ptr<ReplyChannel> channel;
    // Sent with how much of `tokens` is durable by then.
    FinishedEvent event;
    // What was computed and published.
    std::vector<TokenId> tokens;
    std::string name_space;
    // 0: it does not wait.
    std::chrono::milliseconds wait_durable{0};
    // Set by Add().
    Clock::Monotonic deadline{};
  };

  // Both outlive this object.
  ReplyEndings(const cache::KvCache* cache, const Clock* clock)
      : cache_(*cache), clock_(*clock) {}

  // Sends it at once unless it is to wait and there is something to wait for.
  void Add(Ending ending);
  // Sends those that are durable, cannot become it soon (a write failed), or
  // have waited long enough. Forgets those whose reader has left.
  void Settle();
  // Sends all.
  void SendAll();

  bool empty() const { return waiting_.empty(); }

 private:
  // True when it was sent.
  bool SendIfDue(Ending& ending);
  static void Send(Ending& ending, TokenPos durable);

  const cache::KvCache& cache_;
  const Clock& clock_;
  std::vector<Ending> waiting_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_REPLY_ENDINGS_H_
