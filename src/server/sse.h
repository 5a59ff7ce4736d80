// A reply as server-sent events.
//
// Threads: one at a time.
// Owns:    the engine's reply; destroying this cancels it.
// Not here: HTTP (server.cc), the JSON of a chunk (openai_response.h).
#ifndef EVERWARM_SERVER_SSE_H_
#define EVERWARM_SERVER_SSE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/engine.h"
#include "server/openai_response.h"

namespace everwarm::server {

// "data: ...\n\n". Requires: one line.
std::string SseData(std::string_view line);
// A comment: clients skip it, proxies and read timeouts see life.
std::string SseComment(std::string_view text);

// Where the bytes go.
struct SseSink {
  // False: the client is gone.
  std::function<bool(std::string_view)> write;
};

class SseReply {
 public:
  // How long a step waits for the engine before it lets the caller look at the
  // connection; bounds how late a client that left is noticed.
  static constexpr std::chrono::milliseconds kPoll{50};
  // Without an event for so long a comment is sent.
  static constexpr std::chrono::seconds kPing{10};

  enum class State { kGoesOn, kComplete, kClientGone };

  // `first` is an event that was already taken from the reply. The clock
  // outlives this object.
  SseReply(ReplyIdentity identity, std::unique_ptr<engine::Reply> reply,
           std::optional<engine::ReplyEvent> first, const Clock* clock);

  // Sends what comes within kPoll. After anything but kGoesOn it is over.
  State Step(const SseSink& sink);

 private:
  // The bytes of one event, and whether it was the last.
  struct Encoded {
    std::string bytes;
    bool last = false;
  };
  Encoded Encode(const engine::ReplyEvent& event) const;

  const ReplyIdentity identity_;
  const std::unique_ptr<engine::Reply> reply_;
  const Clock* const clock_;
  std::optional<engine::ReplyEvent> first_;
  bool opened_ = false;
  Clock::Monotonic last_sent_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_SSE_H_
