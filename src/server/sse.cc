#include "server/sse.h"

#include <utility>

#include "server/api_error.h"

namespace everwarm::server {

std::string SseData(std::string_view line) {
  return "data: " + std::string(line) + "\n\n";
}

std::string SseComment(std::string_view text) {
  return ": " + std::string(text) + "\n\n";
}

SseReply::SseReply(ReplyIdentity identity, std::unique_ptr<engine::Reply> reply,
                   std::optional<engine::ReplyEvent> first, const Clock* clock)
    : identity_(std::move(identity)),
      reply_(std::move(reply)),
      clock_(clock),
      first_(std::move(first)),
      last_sent_(clock->Now()) {}

SseReply::State SseReply::Step(const SseSink& sink) {
  std::string bytes;
  if (!opened_) {
    opened_ = true;
    if (const std::optional<Json> opening = OpeningChunk(identity_)) {
      bytes = SseData(DumpJson(*opening));
    }
  }
  bool last = false;
  std::optional<engine::ReplyEvent> event = std::exchange(first_, std::nullopt);
  if (!event && bytes.empty()) {
    event = reply_->Next(kPoll);
  }
  if (event) {
    Encoded encoded = Encode(*event);
    bytes += encoded.bytes;
    last = encoded.last;
  } else if (bytes.empty() && clock_->Now() - last_sent_ >= kPing) {
    bytes = SseComment("still computing");
  }
  if (!bytes.empty()) {
    last_sent_ = clock_->Now();
    if (!sink.write(bytes)) {
      reply_->Cancel();
      return State::kClientGone;
    }
  }
  return last ? State::kComplete : State::kGoesOn;
}

SseReply::Encoded SseReply::Encode(const engine::ReplyEvent& event) const {
  if (const auto* text = std::get_if<engine::TextEvent>(&event)) {
    return {SseData(DumpJson(TextChunk(identity_, text->text)))};
  }
  // A stream that failed ends without [DONE], so that nobody takes it for
  // whole.
  if (const auto* failed = std::get_if<engine::FailedEvent>(&event)) {
    return {SseData(ErrorBody(ReplyFailureError(failed->status))), true};
  }
  const auto& finished = std::get<engine::FinishedEvent>(event);
  if (finished.reason == engine::FinishReason::kCancelled) {
    return {SseData(ErrorBody(StoppingError())), true};
  }
  std::string bytes =
      SseData(DumpJson(FinishChunk(identity_, finished.reason)));
  if (identity_.include_usage) {
    bytes += SseData(DumpJson(UsageChunk(identity_, finished.usage)));
  }
  return {bytes + SseData("[DONE]"), true};
}

}  // namespace everwarm::server
