// How far two predictions of one position are apart.
#ifndef EVERWARM_TESTING_LOGIT_DISTANCE_H_
#define EVERWARM_TESTING_LOGIT_DISTANCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/types/span.h"

namespace everwarm {

// Logarithm of the sum of exponentials.
inline double LogSum(absl::Span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(value - top);
  return top + std::log(sum);
}

// Kullback-Leibler divergence of the second from the first, in nats.
inline double LogitKl(absl::Span<const float> expected,
                      absl::Span<const float> actual) {
  const double expected_sum = LogSum(expected);
  const double actual_sum = LogSum(actual);
  double kl = 0.0;
  for (size_t t = 0; t < expected.size(); ++t) {
    const double log_p = expected[t] - expected_sum;
    kl += std::exp(log_p) * (log_p - (actual[t] - actual_sum));
  }
  return kl;
}

// The most likely token.
inline size_t TopToken(absl::Span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) -
                             logits.begin());
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_LOGIT_DISTANCE_H_
