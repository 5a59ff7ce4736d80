#include "engine/step_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "engine/shared_prefixes.h"
#include "engine/step_pacer.h"

namespace everwarm::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Counts = std::vector<uint32_t>;

constexpr uint32_t kBlock = 64;

StepCandidate Reply(TokenPos length) { return {true, length, 1}; }
StepCandidate PromptAt(TokenPos length, uint32_t left) {
  return {false, length, left};
}
Counts Plan(const std::vector<StepCandidate>& candidates, uint32_t limit) {
  return PlanStep(candidates, {limit, false, kBlock});
}

TEST(StepPolicyTest, EveryReplyHasItsTokenWhateverElseThereIs) {
  EXPECT_EQ(Plan({Reply(10), PromptAt(0, 5000), Reply(900)}, 128),
            Counts({1, 128, 1}));
  EXPECT_EQ(Plan({Reply(10), PromptAt(0, 5000), Reply(900)}, 0),
            Counts({1, 0, 1}));
  EXPECT_EQ(Plan({}, 100), Counts());
}

TEST(StepPolicyTest, PromptsAlikeInLengthGoInOrderOfArrival) {
  EXPECT_EQ(Plan({PromptAt(0, 5000), PromptAt(0, 4500)}, 512),
            Counts({512, 0}));
}

TEST(StepPolicyTest, AShortRestGoesFirstAndTheOldestKeepsAQuarter) {
  EXPECT_EQ(Plan({PromptAt(0, 5000), PromptAt(4000, 20)}, 512),
            Counts({448, 20}));
  EXPECT_EQ(Plan({PromptAt(0, 5000), PromptAt(64, 300)}, 128),
            Counts({32, 64}));
  EXPECT_EQ(Plan({PromptAt(0, 5000), PromptAt(64, 300)}, 4), Counts({1, 3}));
  EXPECT_EQ(Plan({PromptAt(0, 5000), PromptAt(64, 300)}, 1), Counts({1, 0}));
}

TEST(StepPolicyTest, ManyShortRestsShareAStep) {
  EXPECT_EQ(
      Plan({PromptAt(4000, 30), PromptAt(4000, 40), PromptAt(4000, 50)}, 512),
      Counts({30, 40, 50}));
  // What the second leaves is no use to the third.
  EXPECT_EQ(
      Plan({PromptAt(4000, 30), PromptAt(4000, 40), PromptAt(4000, 50)}, 80),
      Counts({30, 40, 0}));
}

TEST(StepPolicyTest, PiecesEndWhereBlocksDo) {
  EXPECT_EQ(Plan({PromptAt(10, 5000)}, 512), Counts({502}));
  EXPECT_EQ(Plan({PromptAt(51, 5000)}, 17), Counts({13}));
  EXPECT_EQ(Plan({PromptAt(34, 5000)}, 17), Counts({17}));
  // The prompt's own end is no block's.
  EXPECT_EQ(Plan({PromptAt(10, 100)}, 512), Counts({100}));
}

TEST(StepPolicyTest, NoPieceGoesBeyondTheBorderThatOthersWaitFor) {
  StepCandidate leader = PromptAt(64, 5000);
  leader.border = 100;
  EXPECT_EQ(Plan({leader}, 512), Counts({36}));
  leader.border = 300;
  EXPECT_EQ(Plan({leader}, 128), Counts({128}));
}

TEST(StepPolicyTest, BetweenLongStepsOnlyPromptsThatEndTakePart) {
  const auto between = [](std::vector<StepCandidate> candidates,
                          uint32_t limit) {
    return PlanStep(candidates, {limit, true, kBlock});
  };
  EXPECT_EQ(between({Reply(10), PromptAt(0, 5000), PromptAt(640, 15)}, 20),
            Counts({1, 0, 15}));
  EXPECT_EQ(between({Reply(10), PromptAt(640, 15), PromptAt(640, 15)}, 20),
            Counts({1, 15, 0}));
  EXPECT_EQ(between({Reply(10), PromptAt(640, 21)}, 20), Counts({1, 0}));
}

TEST(StepPolicyTest, AColdPromptIsDoneAfterFourTimesItsOwnTimeAtMost) {
  uint32_t left = 4096;
  TokenPos length = 0;
  uint32_t steps = 0;
  while (left > 0) {
    // There is always a new short prompt.
    const Counts counts =
        Plan({PromptAt(length, left), PromptAt(0, 60), PromptAt(0, 60)}, 64);
    ASSERT_GT(counts[0], 0u);
    left -= counts[0];
    length += counts[0];
    ++steps;
  }
  EXPECT_LE(steps, 4 * 4096u / 64);
}

TEST(StepPolicyTest, NoPlanIsMoreThanTheLimitsAllow) {
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::vector<StepCandidate> candidates;
    for (uint32_t i = random() % 9; i > 0; --i) {
      const TokenPos length = random() % 1000;
      candidates.push_back(random() % 3 == 0
                               ? Reply(length)
                               : PromptAt(length, 1 + random() % 3000));
      if (random() % 3 == 0) {
        candidates.back().border = length + 1 + random() % 200;
      }
    }
    const uint32_t limit = random() % 600;
    const Counts counts = Plan(candidates, limit);
    uint32_t prompts = 0;
    bool any_prompt = false;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].decoding) {
        EXPECT_EQ(counts[i], 1u);
        continue;
      }
      any_prompt = true;
      prompts += counts[i];
      EXPECT_LE(counts[i], candidates[i].left);
      EXPECT_LE(candidates[i].length + counts[i], candidates[i].border);
    }
    EXPECT_LE(prompts, limit);
    EXPECT_EQ(prompts > 0, any_prompt && limit > 0);
  }
}

// A machine on which a step takes that long.
class Machine {
 public:
  Machine(double per_step_us, double per_token_us)
      : per_step_us_(per_step_us), per_token_us_(per_token_us) {}
  double Step(StepPacer& pacer, uint32_t replies, uint32_t prompt_tokens) {
    const double us =
        (per_step_us_ + per_token_us_ * (replies + prompt_tokens)) *
        (0.95 + 0.1 * (random_() % 1000) / 1000);
    pacer.Measured(replies, prompt_tokens,
                   microseconds(static_cast<int64_t>(us)));
    return us;
  }

 private:
  double per_step_us_;
  double per_token_us_;
  std::mt19937 random_{3};
};

constexpr nanoseconds kNoLongSteps{0};

// Beside one reply: nothing of what is for rests only.
uint32_t TokensOfAColdPrompt(StepPacer& pacer) {
  const StepPacer::Allowance allowed = pacer.Next(1);
  return allowed.whole_rests ? 0 : allowed.prompt_tokens;
}

TEST(StepPacerTest, WithoutRepliesAPromptHasTheWholeStep) {
  StepPacer pacer({});
  EXPECT_EQ(pacer.Next(0).prompt_tokens, 512u);
}

TEST(StepPacerTest, AStepWithoutRepliesEndsSoonForWhoeverComesMeanwhile) {
  StepPacer pacer({});
  pacer.Measured(0, 512, milliseconds(5120));
  EXPECT_EQ(pacer.Next(0).prompt_tokens, 100u);
  pacer.Measured(0, 64, milliseconds(64000));
  EXPECT_EQ(pacer.Next(0).prompt_tokens, 1u);
}

TEST(StepPacerTest, RepliesAreMeasuredAloneBeforePromptsGoBesideThem) {
  for (const nanoseconds gap : {kNoLongSteps, nanoseconds(milliseconds(250))}) {
    StepPacer pacer({3, gap, 512});
    EXPECT_EQ(pacer.Next(2).prompt_tokens, 0u);
    pacer.Measured(2, 0, microseconds(8000));
    EXPECT_GT(pacer.Next(2).prompt_tokens, 0u);
    EXPECT_EQ(pacer.Next(3).prompt_tokens, 0u);
  }
}

TEST(StepPacerTest, WithoutLongStepsRepliesKeepTheirPaceAndPromptsGetTheRest) {
  for (const double slowdown : {1.5, 3.0, 10.0}) {
    StepPacer pacer({slowdown, kNoLongSteps, 512});
    Machine machine(6000, 1500);
    const double alone = 6000 + 1500 * 2;
    uint32_t computed = 0;
    std::vector<double> gaps;
    for (int step = 0; step < 2000; ++step) {
      const StepPacer::Allowance allowed = pacer.Next(2);
      EXPECT_FALSE(allowed.whole_rests);
      computed += allowed.prompt_tokens;
      gaps.push_back(machine.Step(pacer, 2, allowed.prompt_tokens) / alone);
    }
    std::sort(gaps.begin(), gaps.end());
    EXPECT_LE(gaps[gaps.size() * 95 / 100], slowdown * 1.02) << slowdown;
    // Most of what would just be allowed.
    const double allowed = 2000 * (slowdown - 1) * alone / 1500;
    EXPECT_GE(computed, allowed * 3 / 5) << slowdown;
  }
}

TEST(StepPacerTest, BesideFastRepliesPromptsGetMostOfTheTimeInFewLongSteps) {
  StepPacer pacer({3, milliseconds(600), 512});
  Machine machine(2000, 1000);
  constexpr double kAlone = 2000 + 1000;
  double time = 0;
  double prompts = 0;
  std::vector<double> gaps;
  for (int step = 0; step < 2000; ++step) {
    const uint32_t tokens = TokensOfAColdPrompt(pacer);
    prompts += 1000 * tokens;
    gaps.push_back(machine.Step(pacer, 1, tokens));
    time += gaps.back();
  }
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() * 95 / 100], kAlone * 1.1);
  // No longer than it takes for that.
  EXPECT_LE(gaps.back(), 27 * kAlone / 0.2 * 1.05);
  EXPECT_GE(prompts / time, 1 / 1.3);
}

TEST(StepPacerTest, NoLongStepIsLongerThanAskedFor) {
  StepPacer pacer({3, milliseconds(250), 512});
  Machine machine(2000, 1000);
  double longest = 0;
  for (int step = 0; step < 1000; ++step) {
    const uint32_t tokens = TokensOfAColdPrompt(pacer);
    longest = std::max(longest, machine.Step(pacer, 1, tokens));
  }
  EXPECT_LE(longest, 250e3 * 1.05);
  EXPECT_GE(longest, 200e3);
}

TEST(StepPacerTest, RepliesThatAreSlowHaveNoLongSteps) {
  StepPacer pacer({3, milliseconds(250), 512});
  pacer.Measured(1, 0, milliseconds(40));
  EXPECT_FALSE(pacer.Next(1).whole_rests);
  pacer.Measured(1, 8, milliseconds(80));
  EXPECT_FALSE(pacer.Next(1).whole_rests);
  EXPECT_LE(pacer.Next(1).prompt_tokens, 16u);
}

TEST(StepPacerTest, ALongStepIsOfALengthWhateverAPromptsTokensCost) {
  StepPacer pacer({3, milliseconds(200), 512});
  double us_each = 200;
  double longest = 0;
  for (int step = 0; step < 1000; ++step) {
    const uint32_t tokens = TokensOfAColdPrompt(pacer);
    const double us = 3000 + us_each * tokens;
    longest = std::max(longest, us);
    pacer.Measured(1, tokens, microseconds(static_cast<int64_t>(us)));
    // Behind more and more context.
    us_each *= 1.002;
  }
  EXPECT_LE(longest, 205e3);
  EXPECT_GE(longest, 150e3);
}

TEST(StepPacerTest, AStepThatWasLongByAccidentStandsForAPlannedOne) {
  StepPacer pacer({3, milliseconds(250), 512});
  pacer.Measured(1, 0, microseconds(3000));
  ASSERT_FALSE(pacer.Next(1).whole_rests);
  pacer.Measured(1, 0, milliseconds(20));
  EXPECT_TRUE(pacer.Next(1).whole_rests);
}

TEST(StepPacerTest, APromptGetsOnHoweverSlowTheMachine) {
  StepPacer pacer({1, kNoLongSteps, 512});
  pacer.Measured(1, 0, microseconds(1000));
  pacer.Measured(1, 8, microseconds(90000));
  EXPECT_GE(pacer.Next(1).prompt_tokens, 1u);
  EXPECT_LE(pacer.Next(1).prompt_tokens, 8u);
}

TEST(StepPacerTest, ATimeAloneThatIsOldIsMeasuredAgain) {
  StepPacer pacer({3, kNoLongSteps, 512});
  pacer.Measured(1, 0, microseconds(1000));
  int steps = 0;
  while (pacer.Next(1).prompt_tokens > 0) {
    pacer.Measured(1, 8, microseconds(2500));
    ASSERT_LT(++steps, 1000);
  }
  EXPECT_GT(steps, 30);
  pacer.Measured(1, 0, microseconds(3000));
  EXPECT_GT(pacer.Next(1).prompt_tokens, 0u);
}

TEST(StepPacerTest, AStepJustAfterPromptsDoesNotMakeRepliesSlower) {
  StepPacer pacer({3, kNoLongSteps, 512});
  pacer.Measured(1, 0, microseconds(1000));
  pacer.Measured(1, 8, microseconds(2500));
  const uint32_t before = pacer.Next(1).prompt_tokens;
  pacer.Measured(1, 0, microseconds(2000));
  EXPECT_EQ(pacer.Next(1).prompt_tokens, before);
  // Two in a row are what they are.
  pacer.Measured(1, 0, microseconds(2000));
  EXPECT_GT(pacer.Next(1).prompt_tokens, before);
}

TEST(StepPacerTest, TimesOfNothingDoNotMakeStepsWithoutEnd) {
  for (const nanoseconds gap : {kNoLongSteps, nanoseconds(milliseconds(250))}) {
    StepPacer pacer({3, gap, 512});
    pacer.Measured(0, 8, nanoseconds(0));
    pacer.Measured(0, 64, nanoseconds(0));
    pacer.Measured(1, 0, nanoseconds(0));
    pacer.Measured(1, 8, nanoseconds(0));
    EXPECT_LE(pacer.Next(1).prompt_tokens, 512u);
  }
}

TEST(SharedPrefixesTest, KnowsHowFarPromptsOfOneNamespaceBeginAlike) {
  const std::vector<TokenId> a = {1, 2, 3, 4};
  const std::vector<TokenId> b = {1, 2, 9};
  const std::vector<TokenId> c = {1, 2};
  SharedPrefixes prefixes;
  prefixes.Add(5, a, "x");
  prefixes.Add(2, b, "x");
  prefixes.Add(9, c, "x");
  prefixes.Add(7, a, "y");
  EXPECT_EQ(prefixes.Common(5, 2), 2u);
  EXPECT_EQ(prefixes.Common(2, 5), 2u);
  EXPECT_EQ(prefixes.Common(9, 5), 2u);
  EXPECT_EQ(prefixes.Common(5, 7), 0u);
  prefixes.Remove(5);
  prefixes.Remove(5);
  prefixes.Add(5, c, "x");
  EXPECT_EQ(prefixes.Common(5, 9), 2u);
}

}  // namespace
}  // namespace everwarm::engine
