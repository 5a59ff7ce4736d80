// Replies as server-sent events.
#ifndef EVERWARM_SERVER_SSE_H_
#define EVERWARM_SERVER_SSE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/json_text.h"
#include "server/reply_form.h"
#include "server/reply_set.h"

namespace everwarm::server {

// "data: ...\n\n". Requires: one line.
std::string SseData(std::string_view line);
// The JSON as data of an event with a name.
std::string SseEvent(std::string_view name, const Json& data);
// A comment: clients skip it, proxies and read timeouts see life.
std::string SseComment(std::string_view text);

// Where the bytes go.
struct SseSink {
  // False: the client is gone.
  std::function<bool(std::string_view)> write;
};

// Sends replies as they come.
//
// Threads: one at a time.
// Owns:    the replies; destroying this cancels them.
// Not here: HTTP (reply_endpoint.cc), the JSON of an event (reply_form.h).
class SseReply {
 public:
  // How long a step waits for the engine before it lets the caller look at the
  // connection; bounds how late a client that left is noticed.
  static constexpr std::chrono::milliseconds kPoll{50};
  // Without an event for so long a ping is sent.
  static constexpr std::chrono::seconds kPing{10};

  enum class State { kGoesOn, kComplete, kClientGone };

  // The clock outlives this object.
  SseReply(std::unique_ptr<ReplyForm> form, ReplySet replies,
           const Clock* clock);

  // Sends what comes within kPoll. After anything but kGoesOn it is over.
  State Step(const SseSink& sink);

 private:
  std::string Encode(const ReplySet::Event& event);

  const std::unique_ptr<ReplyForm> form_;
  ReplySet replies_;
  const Clock* const clock_;
  bool opened_ = false;
  bool over_ = false;
  Clock::Monotonic last_sent_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_SSE_H_
