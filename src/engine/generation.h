// One request from its first block to its last token.
#ifndef EVERWARM_ENGINE_GENERATION_H_
#define EVERWARM_ENGINE_GENERATION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/reply_channel.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "engine/token_text.h"

namespace everwarm::engine {

// Threads: the engine's.
class Generation {
 public:
  enum class Phase {
    kWaiting,   // for its turn
    kLoading,   // for blocks from the tier
    kPrefill,   // prompt tokens are left to compute
    kDecode,    // one token a step
    kFinished,  // its last event has been sent
  };

  Generation(Request request, std::shared_ptr<ReplyChannel> channel,
             const TokenText* text, const Clock* clock);

  Phase phase() const { return phase_; }
  bool cancelled() const { return channel_->cancelled(); }
  const Request& request() const { return request_; }
  const Usage& usage() const { return usage_; }
  cache::Sequence* sequence() { return sequence_.get(); }

  // kWaiting -> kLoading.
  void Start(std::unique_ptr<cache::Sequence> sequence);
  // kLoading -> kPrefill, once the sequence is ready.
  void FinishLoading();

  // Tokens to compute next, at most `limit`: what is left of the prompt, or the
  // token that was sampled last.
  absl::Span<const TokenId> NextTokens(size_t limit) const;
  // The step that takes `count` tokens ends with logits that are needed.
  bool WantsLogits(size_t count) const;

  // The prompt's last token has been computed: kPrefill -> kDecode.
  void BeginDecode(uint32_t vocab_size);
  // Samples, and sends text. May finish.
  void TakeLogits(absl::Span<const float> logits, uint32_t context_size);

  void Finish(FinishReason reason);
  void Fail(absl::Status status);
  // How it ended; nothing while it runs, or when it failed.
  std::optional<FinishReason> reason() const { return reason_; }
  // Gives the blocks back. What was published stays.
  void ReleaseSequence() { sequence_.reset(); }

 private:
  Request request_;
  std::shared_ptr<ReplyChannel> channel_;
  const TokenText* text_;
  const Clock* clock_;
  Phase phase_ = Phase::kWaiting;
  std::optional<FinishReason> reason_;
  std::unique_ptr<cache::Sequence> sequence_;
  std::unique_ptr<Sampler> sampler_;
  TextStream stream_;
  TokenId next_token_ = 0;
  Usage usage_;
  Clock::Monotonic phase_began_;
  Clock::Monotonic first_token_at_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_GENERATION_H_
