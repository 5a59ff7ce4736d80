#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "testing/byte_vocabulary.h"

namespace everwarm::engine {
namespace {

Request With(const SamplingParams& params, std::vector<TokenId> prompt = {}) {
  Request request;
  request.sampling = params;
  request.prompt = std::move(prompt);
  return request;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST(SamplerTest, GreedyTakesTheLargestAndTheFirstOfEquals) {
  Sampler sampler(With(Greedy()), 4);
  EXPECT_EQ(sampler.Sample({1, 3, 2, 3}).value(), 1);
  EXPECT_EQ(sampler.Sample({-5, -7, -6, -9}).value(), 0);
}

TEST(SamplerTest, LogitsThatAreNotFiniteAreNeverChosen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Sampler greedy(With(Greedy()), 3);
  EXPECT_EQ(greedy.Sample({nan, 1, INFINITY}).value(), 1);
  EXPECT_EQ(greedy.Sample({nan, nan, -INFINITY}).status().code(),
            absl::StatusCode::kInternal);
  Sampler random(With({.seed = 1}), 3);
  EXPECT_EQ(random.Sample({nan, 1, -INFINITY}).value(), 1);
}

TEST(SamplerTest, TheSameSeedGivesTheSameTokensAndAnotherDoesNot) {
  const std::vector<float> logits(50, 0.0f);
  const auto draw = [&](uint32_t seed) {
    SamplingParams params{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
    params.seed = seed;
    Sampler sampler(With(params), 50);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 20; ++i) {
      tokens.push_back(sampler.Sample(logits).value());
    }
    return tokens;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(SamplerTest, TopKKeepsOnlyTheLargest) {
  SamplingParams params{.temperature = 5, .top_k = 2, .top_p = 1, .min_p = 0};
  params.seed = 3;
  Sampler sampler(With(params), 5);
  std::set<TokenId> seen;
  for (int i = 0; i < 200; ++i) {
    seen.insert(sampler.Sample({0, 9, 1, 9.5, 2}).value());
  }
  EXPECT_EQ(seen, std::set<TokenId>({1, 3}));
}

TEST(SamplerTest, ARepeatPenaltyCountsThePromptToo) {
  SamplingParams params = Greedy();
  params.repeat_penalty = 2.0f;
  Sampler fresh(With(params), 3);
  EXPECT_EQ(fresh.Sample({1.0f, 1.5f, 0.1f}).value(), 1);
  Sampler seen(With(params, {1}), 3);
  EXPECT_EQ(seen.Sample({1.0f, 1.5f, 0.1f}).value(), 0);
}

TEST(SamplerTest, ABiasIsAddedToItsTokensAlone) {
  SamplingParams params = Greedy();
  params.logit_bias = {{0, 5.0f}, {2, -1.0f}};
  Sampler up(With(params), 3);
  EXPECT_EQ(up.Sample({1.0f, 2.0f, 6.5f}).value(), 0);
  params.logit_bias = {{1, -100.0f}};
  Sampler banned(With(params), 3);
  EXPECT_EQ(banned.Sample({1.0f, 50.0f, 0.0f}).value(), 0);
  // However many are banned, one is chosen.
  params.logit_bias = {{0, -100.0f}, {1, -100.0f}, {2, -100.0f}};
  Sampler all(With(params), 3);
  EXPECT_EQ(all.Sample({1.0f, 2.0f, 0.0f}).value(), 1);
}

// --- with a grammar ---

class GrammarSamplerTest : public testing::TestWithParam<float> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(bytes_.status().ok()) << bytes_.status();
  }
  Sampler Follow(const std::string& grammar) {
    auto compiled =
        models::Grammar::Compile(bytes_.vocabulary(), {.text = grammar});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    Request request;
    request.sampling = {.temperature = GetParam(), .seed = 5};
    request.grammar = *std::move(compiled);
    return Sampler(request, bytes_.vocabulary().size());
  }
  // What is chosen where the model wants `wanted` most, then `next`.
  absl::StatusOr<TokenId> Choose(Sampler& sampler, const std::string& wanted,
                                 const std::string& next) {
    std::vector<float> logits(bytes_.vocabulary().size(), 0.0f);
    logits[static_cast<size_t>(Id(wanted))] = 60.0f;
    logits[static_cast<size_t>(Id(next))] = 40.0f;
    return sampler.Sample(logits);
  }
  TokenId Id(const std::string& text) { return bytes_.Tokens(text).front(); }

  ByteVocabulary bytes_;
};
INSTANTIATE_TEST_SUITE_P(GreedyAndRandom, GrammarSamplerTest,
                         testing::Values(0.0f, 0.7f));

TEST_P(GrammarSamplerTest, TheLikeliestTokenThatFitsIsChosen) {
  Sampler sampler = Follow("root ::= \"yes\" | \"no\"");
  EXPECT_EQ(Choose(sampler, "x", "n").value(), Id("n"));
  EXPECT_EQ(Choose(sampler, "o", "x").value(), Id("o"));
  EXPECT_EQ(Choose(sampler, "x", "y").value(), bytes_.end());
}

TEST_P(GrammarSamplerTest, AGrammarThatNoTokenContinuesIsAnEndAndNoFailure) {
  // A letter that this vocabulary cannot write.
  Sampler sampler = Follow("root ::= \"a\" [\\u00e9]");
  EXPECT_EQ(Choose(sampler, "a", "b").value(), Id("a"));
  EXPECT_TRUE(absl::IsOutOfRange(Choose(sampler, "a", "b").status()));
}

TEST_P(GrammarSamplerTest, RepliesOfOneGrammarDoNotDisturbEachOther) {
  auto compiled = models::Grammar::Compile(
      bytes_.vocabulary(), {.text = "root ::= \"ab\" | \"ba\""});
  ASSERT_TRUE(compiled.ok());
  Request request;
  request.sampling.temperature = GetParam();
  request.grammar = *std::move(compiled);
  Sampler first(request, bytes_.vocabulary().size());
  Sampler second(request, bytes_.vocabulary().size());
  EXPECT_EQ(Choose(first, "a", "b").value(), Id("a"));
  EXPECT_EQ(Choose(second, "b", "a").value(), Id("b"));
  EXPECT_EQ(Choose(first, "a", "b").value(), Id("b"));
  EXPECT_EQ(Choose(second, "b", "a").value(), Id("a"));
}

}  // namespace
}  // namespace everwarm::engine
