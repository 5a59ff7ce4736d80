#include "engine/generation.h"

#include <algorithm>
#include <utility>

namespace everwarm::engine {

Generation::Generation(Request request, std::shared_ptr<ReplyChannel> channel,
                       const TokenText* text, const Clock* clock)
    : request_(std::move(request)),
      channel_(std::move(channel)),
      text_(text),
      clock_(clock),
      stream_(request_.stops),
      phase_began_(clock->Now()) {
  usage_.prompt_tokens = static_cast<uint32_t>(request_.prompt.size());
}

void Generation::Start(std::unique_ptr<cache::Sequence> sequence) {
  const auto now = clock_->Now();
  usage_.queued = now - phase_began_;
  phase_began_ = now;
  sequence_ = std::move(sequence);
  phase_ = Phase::kLoading;
}

void Generation::FinishLoading() {
  const auto now = clock_->Now();
  usage_.restore = now - phase_began_;
  usage_.reuse = sequence_->reuse();
  phase_began_ = now;
  phase_ = Phase::kPrefill;
}

absl::Span<const TokenId> Generation::NextTokens(size_t limit) const {
  if (phase_ == Phase::kDecode) {
    return absl::MakeConstSpan(&next_token_, 1);
  }
  const absl::Span<const TokenId> prompt = request_.prompt;
  const absl::Span<const TokenId> left = prompt.subspan(sequence_->length());
  return left.first(std::min(left.size(), limit));
}

bool Generation::WantsLogits(size_t count) const {
  return phase_ == Phase::kDecode ||
         (sequence_->length() + count == request_.prompt.size() &&
          request_.max_tokens > 0);
}

void Generation::BeginDecode(uint32_t vocab_size) {
  sampler_ =
      std::make_unique<Sampler>(request_.sampling, vocab_size, request_.prompt);
  phase_ = Phase::kDecode;
}

void Generation::TakeLogits(absl::Span<const float> logits,
                            uint32_t context_size) {
  const absl::StatusOr<TokenId> token = sampler_->Sample(logits);
  if (!token.ok()) {
    Fail(token.status());
    return;
  }
  const auto now = clock_->Now();
  if (usage_.completion_tokens == 0) {
    usage_.prefill = now - phase_began_;
    first_token_at_ = now;
  }
  usage_.decode = now - first_token_at_;
  ++usage_.completion_tokens;
  if (text_->IsEndOfGeneration(*token) && !request_.ignore_eos) {
    Finish(FinishReason::kStop);
    return;
  }
  channel_->SendText(stream_.Add(text_->Piece(*token)));
  next_token_ = *token;
  if (stream_.stopped()) {
    Finish(FinishReason::kStop);
  } else if (usage_.completion_tokens >= request_.max_tokens ||
             sequence_->length() + 1 >= context_size) {
    Finish(FinishReason::kLength);
  }
}

void Generation::Finish(FinishReason reason) {
  if (phase_ == Phase::kFinished) {
    return;
  }
  phase_ = Phase::kFinished;
  reason_ = reason;
  channel_->SendText(stream_.Finish());
  channel_->SendLast(FinishedEvent{reason, usage_});
}

void Generation::Fail(absl::Status status) {
  if (phase_ == Phase::kFinished) {
    return;
  }
  phase_ = Phase::kFinished;
  channel_->SendLast(FailedEvent{std::move(status)});
}

}  // namespace everwarm::engine
