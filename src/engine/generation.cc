#include "engine/generation.h"

#include <algorithm>
#include <utility>

#include "engine/logprobs.h"

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

void Generation::Follow() { phase_ = Phase::kFollowing; }

void Generation::Start(std::unique_ptr<cache::Sequence> sequence) {
  if (!begun_) {
    const auto now = clock_->Now();
    usage_.queued += now - phase_began_;
    phase_began_ = now;
  }
  sequence_ = std::move(sequence);
  phase_ = Phase::kLoading;
}

void Generation::FinishLoading() {
  if (!begun_) {
    const auto now = clock_->Now();
    usage_.restore = now - phase_began_;
    usage_.reuse = sequence_->reuse();
    phase_began_ = now;
    begun_ = true;
  }
  phase_ = Phase::kPrefill;
}

void Generation::Pause() {
  sequence_.reset();
  phase_ = Phase::kWaiting;
}

std::vector<TokenId> Generation::AllTokens() const {
  std::vector<TokenId> all = request_.prompt;
  all.insert(all.end(), generated_.begin(), generated_.end());
  return all;
}

size_t Generation::left() const { return num_tokens() - sequence_->length(); }

absl::Span<const TokenId> Generation::NextTokens(size_t limit) const {
  const size_t prompt_size = request_.prompt.size();
  const size_t length = sequence_->length();
  const absl::Span<const TokenId> rest =
      length < prompt_size
          ? absl::MakeConstSpan(request_.prompt).subspan(length)
          : absl::MakeConstSpan(generated_).subspan(length - prompt_size);
  return rest.first(std::min(rest.size(), limit));
}

bool Generation::WantsLogits(size_t count) const {
  return count == left() && request_.max_tokens > 0;
}

void Generation::BeginDecode(uint32_t vocab_size) {
  if (sampler_ == nullptr) {
    sampler_ = std::make_unique<Sampler>(request_, vocab_size);
  }
  phase_ = Phase::kDecode;
}

void Generation::TakeLogits(absl::Span<const float> logits,
                            uint32_t context_size) {
  const absl::StatusOr<TokenId> token = sampler_->Sample(logits);
  if (absl::IsOutOfRange(token.status())) {
    Finish(FinishReason::kStop);
    return;
  }
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
  const std::string piece = PieceOf(*token);
  reply_bytes_ += piece.size();
  if (request_.top_logprobs.has_value()) {
    held_tokens_.push_back(
        {LogprobsOf(logits, *token, *request_.top_logprobs), reply_bytes_});
  }
  SendText(stream_.Add(piece));
  generated_.push_back(*token);
  if (stream_.stopped()) {
    Finish(FinishReason::kStop);
  } else if (usage_.completion_tokens >= request_.max_tokens ||
             sequence_->length() + 1 >= context_size) {
    Finish(FinishReason::kLength);
  }
}

void Generation::SendText(std::string text) {
  TextEvent event{std::move(text)};
  while (!held_tokens_.empty() &&
         held_tokens_.front().end <= stream_.sent_bytes()) {
    event.tokens.push_back(std::move(held_tokens_.front().token));
    held_tokens_.pop_front();
  }
  channel_->SendText(std::move(event));
}

std::string Generation::PieceOf(TokenId token) const {
  const std::vector<TokenId>& shown = request_.shown_control_tokens;
  return std::find(shown.begin(), shown.end(), token) == shown.end()
             ? text_->Piece(token)
             : text_->PieceWithControl(token);
}

void Generation::Finish(FinishReason reason) {
  if (phase_ == Phase::kFinished) {
    return;
  }
  phase_ = Phase::kFinished;
  reason_ = reason;
  SendText(stream_.Finish());
}

void Generation::Fail(absl::Status status) {
  if (phase_ == Phase::kFinished) {
    return;
  }
  phase_ = Phase::kFinished;
  channel_->SendLast(FailedEvent{std::move(status)});
}

}  // namespace everwarm::engine
