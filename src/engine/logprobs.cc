#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace everwarm::engine {
namespace {

// JSON has no infinity; no logit of a real model is that far below another.
constexpr float kImpossible = -9999.0f;

}  // namespace

ChosenToken LogprobsOf(absl::Span<const float> logits, TokenId token,
                       uint32_t num_top) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) {
    if (std::isfinite(logit)) {
      largest = std::max(largest, logit);
    }
  }
  double sum = 0.0;
  std::vector<TokenId> ids;
  ids.reserve(num_top == 0 ? 0 : logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      continue;
    }
    sum += std::exp(static_cast<double>(logits[i] - largest));
    if (num_top > 0) {
      ids.push_back(static_cast<TokenId>(i));
    }
  }
  const double log_sum = std::log(sum) + largest;
  const auto of = [&](TokenId id) -> TokenLogprob {
    const float logit = logits[static_cast<size_t>(id)];
    return {id, std::isfinite(logit) ? static_cast<float>(logit - log_sum)
                                     : kImpossible};
  };
  ChosenToken chosen{of(token), {}};
  const size_t count = std::min<size_t>(num_top, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count),
                    ids.end(), [&](TokenId a, TokenId b) {
                      const float left = logits[static_cast<size_t>(a)];
                      const float right = logits[static_cast<size_t>(b)];
                      return left != right ? left > right : a < b;
                    });
  for (size_t i = 0; i < count; ++i) {
    chosen.top.push_back(of(ids[i]));
  }
  return chosen;
}

}  // namespace everwarm::engine
