// Chooses the next token, by llama.cpp's samplers.
#ifndef EVERWARM_ENGINE_SAMPLER_H_
#define EVERWARM_ENGINE_SAMPLER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/engine.h"

namespace everwarm::engine {

// Threads: one at a time.
class Sampler {
 public:
  // The prompt's last tokens count for the penalties.
  Sampler(const SamplingParams& params, uint32_t vocab_size,
          absl::Span<const TokenId> prompt);
  ~Sampler();

  // Shapes: logits [vocab_size].
  // Errors: kInternal, no logit is finite.
  absl::StatusOr<TokenId> Sample(absl::Span<const float> logits);

 private:
  struct Chain;
  // Null for plain greedy sampling, which is the largest logit, first of
  // equals.
  std::unique_ptr<Chain> chain_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_SAMPLER_H_
