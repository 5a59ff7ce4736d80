#include "server/sse.h"

#include <utility>

#include "server/api_error.h"

namespace everwarm::server {

std::string SseData(std::string_view line) {
  return "data: " + std::string(line) + "\n\n";
}

std::string SseEvent(std::string_view name, const Json& data) {
  return "event: " + std::string(name) + "\n" + SseData(DumpJson(data));
}

std::string SseComment(std::string_view text) {
  return ": " + std::string(text) + "\n\n";
}

SseReply::SseReply(std::unique_ptr<ReplyForm> form, ReplySet replies,
                   const Clock* clock)
    : form_(std::move(form)),
      replies_(std::move(replies)),
      clock_(clock),
      last_sent_(clock->Now()) {}

SseReply::State SseReply::Step(const SseSink& sink) {
  std::string bytes;
  if (!opened_) {
    opened_ = true;
    bytes = form_->Begin();
  }
  std::optional<ReplySet::Event> event =
      replies_.Next(bytes.empty() ? kPoll : std::chrono::milliseconds(0));
  if (event) {
    bytes += Encode(*event);
    if (!over_ && replies_.done()) {
      over_ = true;
      bytes += form_->End();
    }
  } else if (bytes.empty() && clock_->Now() - last_sent_ >= kPing) {
    bytes = form_->Ping();
  }
  if (!bytes.empty()) {
    last_sent_ = clock_->Now();
    if (!sink.write(bytes)) {
      replies_.CancelAll();
      return State::kClientGone;
    }
  }
  return over_ ? State::kComplete : State::kGoesOn;
}

std::string SseReply::Encode(const ReplySet::Event& event) {
  if (const auto* text = std::get_if<engine::TextEvent>(&event.event)) {
    return form_->Text(event.choice, *text);
  }
  if (const auto* failed = std::get_if<engine::FailedEvent>(&event.event)) {
    over_ = true;
    replies_.CancelAll();
    return form_->Fail(ReplyFailureError(failed->status));
  }
  const auto& finished = std::get<engine::FinishedEvent>(event.event);
  if (finished.reason == engine::FinishReason::kCancelled) {
    over_ = true;
    replies_.CancelAll();
    return form_->Fail(StoppingError());
  }
  return form_->Finish(event.choice, finished);
}

}  // namespace everwarm::server
