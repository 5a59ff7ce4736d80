// How likely a token was.
#ifndef EVERWARM_ENGINE_LOGPROBS_H_
#define EVERWARM_ENGINE_LOGPROBS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/engine.h"

namespace everwarm::engine {

// The chosen token and the `num_top` likeliest, most likely first, of equals
// the lower id. Logits that are not finite count as impossible.
//
// Threads: pure, any.
// Shapes:  logits [vocab_size].
// Requires: at least one logit is finite; the token is in the vocabulary.
ChosenToken LogprobsOf(absl::Span<const float> logits, TokenId token,
                       uint32_t num_top);

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_LOGPROBS_H_
