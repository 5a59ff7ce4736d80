// Chooses the next token, by llama.cpp's samplers.
#ifndef EVERWARM_ENGINE_SAMPLER_H_
#define EVERWARM_ENGINE_SAMPLER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "models/grammar.h"

namespace everwarm::engine {

// Threads: one at a time.
class Sampler {
 public:
  // The prompt's last tokens count for the penalties.
  Sampler(const Request& request, uint32_t vocab_size);
  ~Sampler();

  // Shapes: logits [vocab_size].
  // Errors: kInternal, no logit is finite; kOutOfRange, the grammar has come to
  //         an end that no token of the vocabulary fits.
  absl::StatusOr<TokenId> Sample(absl::Span<const float> logits);

 private:
  absl::StatusOr<TokenId> SampleInGrammar(absl::Span<const float> logits);
  absl::StatusOr<TokenId> Choose(absl::Span<const float> logits);

  struct Chain;
  // Null for plain greedy sampling, which is the largest logit, first of
  // equals.
  std::unique_ptr<Chain> chain_;
  const std::vector<std::pair<TokenId, float>> logit_bias_;
  // Null: the reply is free.
  std::unique_ptr<models::Grammar> grammar_;
  // With bias or grammar: the logits as they were changed.
  std::vector<float> changed_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_SAMPLER_H_
