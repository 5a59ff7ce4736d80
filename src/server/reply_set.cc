#include "server/reply_set.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace everwarm::server {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// With several replies each is waited for so long before the next is looked at.
constexpr milliseconds kGlance{5};
constexpr milliseconds kPoll{50};

}  // namespace

absl::StatusOr<ReplySet> ReplySet::Submit(
    engine::Engine& engine, std::vector<engine::Request> requests) {
  std::vector<std::unique_ptr<engine::Reply>> replies;
  for (engine::Request& request : requests) {
    absl::StatusOr<std::unique_ptr<engine::Reply>> reply =
        engine.Submit(std::move(request));
    if (!reply.ok()) {
      return reply.status();
    }
    replies.push_back(*std::move(reply));
  }
  return ReplySet(std::move(replies));
}

std::optional<ReplySet::Event> ReplySet::NextOf(size_t choice,
                                                milliseconds timeout) {
  std::optional<engine::ReplyEvent> event = replies_[choice]->Next(timeout);
  if (!event) {
    return std::nullopt;
  }
  if (!std::holds_alternative<engine::TextEvent>(*event)) {
    ended_[choice] = true;
    --running_;
  }
  return Event{choice, *std::move(event)};
}

std::optional<ReplySet::Event> ReplySet::Next(milliseconds timeout) {
  if (first_) {
    return std::exchange(first_, std::nullopt);
  }
  const auto deadline = SteadyClock::now() + timeout;
  while (running_ > 0) {
    for (size_t i = 0; i < replies_.size(); ++i) {
      const size_t choice = (turn_ + i) % replies_.size();
      if (ended_[choice]) {
        continue;
      }
      if (std::optional<Event> event = NextOf(choice, milliseconds(0))) {
        turn_ = choice + 1;
        return event;
      }
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now());
    if (left <= milliseconds(0)) {
      return std::nullopt;
    }
    while (ended_[turn_ % replies_.size()]) {
      ++turn_;
    }
    const size_t choice = turn_++ % replies_.size();
    std::optional<Event> event =
        NextOf(choice, running_ == 1 ? left : std::min(left, kGlance));
    if (event) {
      return event;
    }
  }
  return std::nullopt;
}

void ReplySet::CancelAll() {
  for (const std::unique_ptr<engine::Reply>& reply : replies_) {
    reply->Cancel();
  }
}

std::variant<std::vector<WholeChoice>, ApiError, ClientLeft> CollectReplies(
    ReplySet& replies, const std::function<bool()>& client_gone) {
  std::vector<WholeChoice> choices(replies.size());
  auto looked = SteadyClock::now();
  while (!replies.done()) {
    std::optional<ReplySet::Event> next = replies.Next(kPoll);
    if (!next || SteadyClock::now() - looked >= kPoll) {
      looked = SteadyClock::now();
      if (client_gone()) {
        replies.CancelAll();
        return ClientLeft();
      }
    }
    if (!next) {
      continue;
    }
    WholeChoice& choice = choices[next->choice];
    if (auto* text = std::get_if<engine::TextEvent>(&next->event)) {
      choice.text += text->text;
      std::move(text->tokens.begin(), text->tokens.end(),
                std::back_inserter(choice.tokens));
    } else if (auto* failed = std::get_if<engine::FailedEvent>(&next->event)) {
      replies.CancelAll();
      return ReplyFailureError(failed->status);
    } else {
      choice.finished = std::get<engine::FinishedEvent>(std::move(next->event));
      if (choice.finished.reason == engine::FinishReason::kCancelled) {
        replies.CancelAll();
        return StoppingError();
      }
    }
  }
  return choices;
}

}  // namespace everwarm::server
