#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "llama.h"

namespace everwarm::engine {
namespace {

bool HasPenalties(const SamplingParams& params) {
  return params.repeat_last_n != 0 &&
         (params.repeat_penalty != 1.0f || params.frequency_penalty != 0.0f ||
          params.presence_penalty != 0.0f);
}

}  // namespace

struct Sampler::Chain {
  llama_sampler* samplers = nullptr;
  std::vector<llama_token_data> candidates;

  Chain() = default;
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain() { llama_sampler_free(samplers); }

  void Add(llama_sampler* sampler) {
    llama_sampler_chain_add(samplers, sampler);
  }
};

Sampler::Sampler(const Request& request, uint32_t vocab_size)
    : logit_bias_(request.sampling.logit_bias),
      grammar_(request.grammar == nullptr ? nullptr
                                          : request.grammar->Clone()) {
  const SamplingParams& params = request.sampling;
  const bool greedy = params.temperature <= 0.0f;
  if (greedy && !HasPenalties(params)) {
    return;
  }
  chain_ = std::make_unique<Chain>();
  llama_sampler_chain_params chain_params =
      llama_sampler_chain_default_params();
  chain_params.no_perf = true;
  chain_->samplers = llama_sampler_chain_init(chain_params);
  // The order is llama-server's default.
  if (HasPenalties(params)) {
    chain_->Add(llama_sampler_init_penalties(
        static_cast<int32_t>(vocab_size), params.repeat_last_n,
        params.repeat_penalty, params.frequency_penalty,
        params.presence_penalty));
  }
  if (greedy) {
    chain_->Add(llama_sampler_init_greedy());
  } else {
    chain_->Add(llama_sampler_init_top_k(params.top_k));
    chain_->Add(llama_sampler_init_top_p(params.top_p, 1));
    chain_->Add(llama_sampler_init_min_p(params.min_p, 1));
    chain_->Add(llama_sampler_init_temp(params.temperature));
    chain_->Add(
        llama_sampler_init_dist(params.seed.value_or(LLAMA_DEFAULT_SEED)));
  }
  for (const TokenId token : request.prompt) {
    llama_sampler_accept(chain_->samplers, token);
  }
}

Sampler::~Sampler() = default;

absl::StatusOr<TokenId> Sampler::Sample(absl::Span<const float> logits) {
  if (!logit_bias_.empty()) {
    changed_.assign(logits.begin(), logits.end());
    for (const auto& [token, bias] : logit_bias_) {
      changed_[static_cast<size_t>(token)] += bias;
    }
    logits = changed_;
  }
  const absl::StatusOr<TokenId> token =
      grammar_ == nullptr ? Choose(logits) : SampleInGrammar(logits);
  if (!token.ok()) {
    return token;
  }
  if (chain_ != nullptr) {
    llama_sampler_accept(chain_->samplers, *token);
  }
  if (grammar_ != nullptr) {
    EW_RETURN_IF_ERROR(grammar_->Accept(*token));
  }
  return token;
}

// Looking at one token is cheap and mostly enough; the whole vocabulary is
// compared with the grammar only when that one does not fit.
absl::StatusOr<TokenId> Sampler::SampleInGrammar(
    absl::Span<const float> logits) {
  absl::StatusOr<TokenId> token = Choose(logits);
  if (token.ok() && !grammar_->Allows(*token)) {
    if (logits.data() != changed_.data()) {
      changed_.assign(logits.begin(), logits.end());
    }
    grammar_->Mask(absl::MakeSpan(changed_));
    const bool possible =
        std::any_of(changed_.begin(), changed_.end(),
                    [](float logit) { return std::isfinite(logit); });
    if (!possible) {
      return absl::OutOfRangeError("no token continues the grammar");
    }
    token = Choose(changed_);
  }
  return token;
}

absl::StatusOr<TokenId> Sampler::Choose(absl::Span<const float> logits) {
  size_t best = logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i]) &&
        (best == logits.size() || logits[i] > logits[best])) {
      best = i;
    }
  }
  if (best == logits.size()) {
    return absl::InternalError("the model gave no finite logit");
  }
  if (chain_ == nullptr) {
    return static_cast<TokenId>(best);
  }
  chain_->candidates.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isfinite(logits[i]) ? logits[i] : -INFINITY;
    chain_->candidates[i] = {static_cast<llama_token>(i), logit, 0.0f};
  }
  llama_token_data_array array = {chain_->candidates.data(),
                                  chain_->candidates.size(), -1, false};
  llama_sampler_apply(chain_->samplers, &array);
  if (array.selected < 0 || static_cast<size_t>(array.selected) >= array.size) {
    return absl::InternalError("the samplers chose no token");
  }
  return array.data[array.selected].id;
}

}  // namespace everwarm::engine
