#include "server/collected_reply.h"

#include <chrono>
#include <optional>
#include <utility>

namespace everwarm::server {

std::variant<CollectedReply, ApiError, ClientLeft> CollectReply(
    engine::Reply& reply, const std::function<bool()>& client_gone) {
  constexpr std::chrono::milliseconds kPoll{50};
  using SteadyClock = std::chrono::steady_clock;
  CollectedReply collected;
  auto looked = SteadyClock::now();
  while (true) {
    std::optional<engine::ReplyEvent> event = reply.Next(kPoll);
    if (!event || SteadyClock::now() - looked >= kPoll) {
      looked = SteadyClock::now();
      if (client_gone()) {
        reply.Cancel();
        return ClientLeft();
      }
    }
    if (!event) {
      continue;
    }
    if (auto* text = std::get_if<engine::TextEvent>(&*event)) {
      collected.text += text->text;
    } else if (auto* failed = std::get_if<engine::FailedEvent>(&*event)) {
      return ReplyFailureError(failed->status);
    } else {
      collected.finished = std::get<engine::FinishedEvent>(*event);
      if (collected.finished.reason == engine::FinishReason::kCancelled) {
        return StoppingError();
      }
      return collected;
    }
  }
}

}  // namespace everwarm::server
