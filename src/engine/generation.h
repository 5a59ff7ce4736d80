// One request from its first block to its last token.
#ifndef EVERWARM_ENGINE_GENERATION_H_
#define EVERWARM_ENGINE_GENERATION_H_

#include <deque>
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
    kWaiting,    // for its turn; also when it was paused
    kFollowing,  // has its turn, but another one computes what it begins with
    kLoading,    // for blocks from the tier
    kPrefill,    // more is left to compute than the last token
    kDecode,     // one token a step
    kFinished,   // nothing more is computed
  };

  Generation(Request request, std::shared_ptr<ReplyChannel> channel,
             const TokenText* text, const Clock* clock);

  Phase phase() const { return phase_; }
  bool cancelled() const { return channel_->cancelled(); }
  const Request& request() const { return request_; }
  const Usage& usage() const { return usage_; }
  const std::shared_ptr<ReplyChannel>& channel() const { return channel_; }
  cache::Sequence* sequence() { return sequence_.get(); }

  // kWaiting -> kFollowing.
  void Follow();
  // kFollowing -> kLoading.
  void Start(std::unique_ptr<cache::Sequence> sequence);
  // kLoading -> kPrefill, once the sequence is ready.
  void FinishLoading();

  // Its blocks were there once, so that it is not new any more.
  bool begun() const { return begun_; }
  // Gives the blocks back in the middle; it goes on later where it was, with
  // what can be found again. -> kWaiting.
  void Pause();

  // The prompt, and what was generated.
  std::vector<TokenId> AllTokens() const;
  size_t num_tokens() const {
    return request_.prompt.size() + generated_.size();
  }
  // Tokens that have KV.
  TokenPos length() const {
    return sequence_ == nullptr ? 0 : sequence_->length();
  }
  // How many of them have no KV yet. Requires: a sequence.
  size_t left() const;
  // Tokens to compute next, at most `limit`; perhaps fewer than are left.
  absl::Span<const TokenId> NextTokens(size_t limit) const;
  // The step that takes `count` tokens ends with logits that are needed.
  bool WantsLogits(size_t count) const;

  // Nothing is left to compute: kPrefill -> kDecode.
  void BeginDecode(uint32_t vocab_size);
  // Samples, and sends text. May finish.
  void TakeLogits(absl::Span<const float> logits, uint32_t context_size);

  // Sends the rest of the text. The last event is the scheduler's to send
  // (reply_endings.h): it says what became of the blocks.
  void Finish(FinishReason reason);
  void Fail(absl::Status status);
  // How it ended; nothing while it runs, or when it failed.
  std::optional<FinishReason> reason() const { return reason_; }
  // The stop string that ended it; empty: none did.
  const std::string& stop() const { return stream_.stop(); }
  // Gives the blocks back. What was published stays.
  void ReleaseSequence() { sequence_.reset(); }

 private:
  void SendText(std::string text);
  std::string PieceOf(TokenId token) const;

  Request request_;
  std::shared_ptr<ReplyChannel> channel_;
  const TokenText* text_;
  const Clock* clock_;
  Phase phase_ = Phase::kWaiting;
  std::optional<FinishReason> reason_;
  std::unique_ptr<cache::Sequence> sequence_;
  std::unique_ptr<Sampler> sampler_;
  TextStream stream_;
  // Tokens whose text has not been sent, and where it ends in the reply's
  // bytes.
  struct HeldToken {
    ChosenToken token;
    size_t end = 0;
  };
  std::deque<HeldToken> held_tokens_;
  size_t reply_bytes_ = 0;
  // The last one has no KV yet.
  std::vector<TokenId> generated_;
  Usage usage_;
  // It has begun once; what follows a pause is not counted as waiting.
  bool begun_ = false;
  Clock::Monotonic phase_began_;
  Clock::Monotonic first_token_at_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_GENERATION_H_
