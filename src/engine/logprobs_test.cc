#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace everwarm::engine {
namespace {

TEST(LogprobsTest, TheyAreTheLogarithmsOfProbabilitiesThatSumToOne) {
  const std::vector<float> logits = {1.0f, 3.0f, -2.0f, 3.0f, 0.5f};
  double sum = 0;
  for (TokenId token = 0; token < 5; ++token) {
    sum += std::exp(LogprobsOf(logits, token, 0).chosen.logprob);
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
  EXPECT_TRUE(LogprobsOf(logits, 0, 0).top.empty());
  EXPECT_NEAR(LogprobsOf({7.0f, 7.0f}, 1, 0).chosen.logprob, -std::log(2.0),
              1e-6);
}

TEST(LogprobsTest, TheLikeliestComeFirstAndOfEqualsTheLowerId) {
  const ChosenToken chosen = LogprobsOf({1.0f, 3.0f, -2.0f, 3.0f, 0.5f}, 2, 3);
  EXPECT_EQ(chosen.chosen.token, 2);
  ASSERT_EQ(chosen.top.size(), 3u);
  EXPECT_EQ(chosen.top[0].token, 1);
  EXPECT_EQ(chosen.top[1].token, 3);
  EXPECT_EQ(chosen.top[2].token, 0);
  EXPECT_EQ(chosen.top[0].logprob, chosen.top[1].logprob);
  EXPECT_GT(chosen.top[1].logprob, chosen.top[2].logprob);
}

TEST(LogprobsTest, MoreThanTheVocabularyIsTheVocabulary) {
  EXPECT_EQ(LogprobsOf({1.0f, 2.0f}, 0, 20).top.size(), 2u);
}

TEST(LogprobsTest,
     ImpossibleTokensHaveAFiniteNumberAndAreNotAmongTheLikeliest) {
  const float never = -std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ChosenToken chosen = LogprobsOf({never, 1000.0f, nan}, 0, 5);
  EXPECT_TRUE(std::isfinite(chosen.chosen.logprob));
  ASSERT_EQ(chosen.top.size(), 1u);
  EXPECT_EQ(chosen.top[0].token, 1);
  EXPECT_EQ(chosen.top[0].logprob, 0.0f);
}

}  // namespace
}  // namespace everwarm::engine
