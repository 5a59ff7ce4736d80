// The events of one request on their way from the engine thread to a reader.
#ifndef EVERWARM_ENGINE_REPLY_CHANNEL_H_
#define EVERWARM_ENGINE_REPLY_CHANNEL_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "engine/engine.h"

namespace everwarm::engine {

// Shared by the engine and a ChannelReply.
//
// Threads: Send*() from the engine thread, the rest from the reader's.
// Bounds:  a reader that is slow gets longer pieces, not more events; the text
//          of a reply is bounded by its max_tokens.
class ReplyChannel {
 public:
  void SendText(TextEvent event);
  // The last event; later ones are ignored.
  void SendLast(ReplyEvent event);

  std::optional<ReplyEvent> Next(std::chrono::milliseconds timeout);

  void Cancel() { cancelled_.store(true); }
  bool cancelled() const { return cancelled_.load(); }

 private:
  Mutex mutex_;
  CondVar arrived_;
  TextEvent text_ ABSL_GUARDED_BY(mutex_);
  std::optional<ReplyEvent> last_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancelled_{false};
};

// The reader's end. Destroying it cancels the request.
class ChannelReply final : public Reply {
 public:
  // `wake_engine` lets the engine notice a cancellation at once.
  ChannelReply(std::shared_ptr<ReplyChannel> channel,
               std::function<void()> wake_engine);
  ~ChannelReply() override;
  std::optional<ReplyEvent> Next(std::chrono::milliseconds timeout) override;
  void Cancel() override;

 private:
  std::shared_ptr<ReplyChannel> channel_;
  std::function<void()> wake_engine_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_REPLY_CHANNEL_H_
