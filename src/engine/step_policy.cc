#include "engine/step_policy.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace everwarm::engine {
namespace {

// The oldest prompt's part of a step.
constexpr uint32_t kOldestShare = 4;

// Prompts of one class go in order of arrival; a class is four times the one
// before it.
int LengthClass(const StepCandidate& candidate, uint32_t block_tokens) {
  return std::bit_width(candidate.left / block_tokens) / 2;
}

// How many tokens the candidate takes of `limit`, `taken` of it being planned
// already.
uint32_t Piece(const StepCandidate& candidate, uint32_t taken, uint32_t limit,
               uint32_t block_tokens) {
  const TokenPos start = candidate.length + taken;
  const uint32_t most =
      std::min(candidate.left - taken, candidate.border - start);
  if (limit >= most) {
    return most;
  }
  const TokenPos whole = (start + limit) / block_tokens * block_tokens;
  return whole > start ? whole - start : limit;
}

}  // namespace

std::vector<uint32_t> PlanStep(absl::Span<const StepCandidate> candidates,
                               const StepLimits& limits) {
  std::vector<uint32_t> counts(candidates.size(), 0);
  std::vector<size_t> prompts;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].decoding) {
      counts[i] = 1;
    } else if (!limits.whole_rests ||
               candidates[i].left <= limits.prompt_tokens) {
      prompts.push_back(i);
    }
  }
  if (prompts.empty() || limits.prompt_tokens == 0) {
    return counts;
  }
  const size_t oldest = prompts.front();
  std::stable_sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    return LengthClass(candidates[a], limits.block_tokens) <
           LengthClass(candidates[b], limits.block_tokens);
  });
  uint32_t left = limits.prompt_tokens;
  const auto give = [&](size_t i, uint32_t limit) {
    const uint32_t more =
        Piece(candidates[i], counts[i], limit, limits.block_tokens);
    counts[i] += more;
    left -= more;
  };
  if (prompts.front() != oldest && !limits.whole_rests) {
    give(oldest, std::max(1u, left / kOldestShare));
  }
  for (const size_t i : prompts) {
    // A scrap of a step is worth its overhead only to who is done with it.
    const bool ends = left >= candidates[i].left - counts[i];
    const bool useful =
        ends || (!limits.whole_rests &&
                 (i == prompts.front() || left >= limits.block_tokens));
    if (left > 0 && useful) {
      give(i, left);
    }
  }
  return counts;
}

}  // namespace everwarm::engine
