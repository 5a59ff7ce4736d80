// Which tokens go into the next step: every running reply's next one, and
// pieces of the prompts that are being computed.
//
// Pure: no clock, no threads, no blocks.
#ifndef EVERWARM_ENGINE_STEP_POLICY_H_
#define EVERWARM_ENGINE_STEP_POLICY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace everwarm::engine {

struct StepCandidate {
  static constexpr TokenPos kNoBorder = std::numeric_limits<TokenPos>::max();

  // A running reply: it has one token to compute, in every step.
  bool decoding = false;
  // Tokens whose KV is there.
  TokenPos length = 0;
  // Tokens that are to be computed behind them; at least 1.
  uint32_t left = 1;
  // A step of its own ends here: what is before it is published, for others
  // that wait or for later prompts.
  TokenPos border = kNoBorder;
};

struct StepLimits {
  // Of all prompts together.
  uint32_t prompt_tokens = 0;
  // Only prompts whose end is within reach take part.
  bool whole_rests = false;
  uint32_t block_tokens = 64;
};

// How many tokens of each candidate, which are in order of arrival, the next
// step computes.
//
// Prompts with little left go first, so that one that is cached does not wait
// behind a cold one; those with about as much left, in order of arrival. A
// quarter is always the oldest prompt's: it goes on, however many short ones
// come. What a prompt leaves goes to the next one if that can use it well.
// Pieces end where blocks do, as far as they reach that, so that whole blocks
// can be published.
std::vector<uint32_t> PlanStep(absl::Span<const StepCandidate> candidates,
                               const StepLimits& limits);

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_STEP_POLICY_H_
