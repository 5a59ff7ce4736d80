#include "engine/reply_channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace everwarm::engine {

void ReplyChannel::SendText(TextEvent event) {
  if (event.text.empty() && event.tokens.empty()) {
    return;
  }
  MutexLock lock(mutex_);
  if (closed_) {
    return;
  }
  text_.text += event.text;
  std::move(event.tokens.begin(), event.tokens.end(),
            std::back_inserter(text_.tokens));
  arrived_.NotifyOne();
}

void ReplyChannel::SendLast(ReplyEvent event) {
  MutexLock lock(mutex_);
  if (closed_) {
    return;
  }
  closed_ = true;
  last_ = std::move(event);
  arrived_.NotifyOne();
}

std::optional<ReplyEvent> ReplyChannel::Next(
    std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  for (;;) {
    if (!text_.text.empty() || !text_.tokens.empty()) {
      return std::exchange(text_, {});
    }
    if (last_.has_value()) {
      return std::exchange(last_, std::nullopt);
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    if (closed_ || left <= std::chrono::nanoseconds(0)) {
      return std::nullopt;
    }
    arrived_.WaitFor(mutex_, left);
  }
}

ChannelReply::ChannelReply(std::shared_ptr<ReplyChannel> channel,
                           std::function<void()> wake_engine)
    : channel_(std::move(channel)), wake_engine_(std::move(wake_engine)) {}

ChannelReply::~ChannelReply() { Cancel(); }

std::optional<ReplyEvent> ChannelReply::Next(
    std::chrono::milliseconds timeout) {
  return channel_->Next(timeout);
}

void ChannelReply::Cancel() {
  channel_->Cancel();
  wake_engine_();
}

}  // namespace everwarm::engine
