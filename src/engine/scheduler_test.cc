#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "testing/scheduler_world.h"

namespace everwarm::engine {
namespace {

uint64_t NumGroups(const Groups& groups) {
  return 1 + (groups.window > 0 ? 1 : 0) + (groups.states ? 1 : 0);
}

class SchedulerTest : public testing::TestWithParam<Groups> {};
INSTANTIATE_TEST_SUITE_P(AllKinds, SchedulerTest,
                         testing::Values(Groups{0, false}, Groups{40, false},
                                         Groups{0, true}, Groups{40, true}));

TEST_P(SchedulerTest, SixteenAtOnceOnANewPrefixComputeItOnce) {
  World world({.groups = GetParam()});
  const auto prefix = SomePrompt(333, 1);
  std::vector<World::Channel> channels;
  for (TokenId i = 0; i < 16; ++i) {
    channels.push_back(world.Ask(With(prefix, 5 + i, i), 12));
  }
  world.RunAll();
  size_t own = 0;
  for (TokenId i = 0; i < 16; ++i) {
    const Outcome outcome = World::Read(channels[i]);
    EXPECT_EQ(outcome.text, Cold(With(prefix, 5 + i, i), 12, GetParam())) << i;
    EXPECT_EQ(outcome.usage.reuse.cached, i == 0 ? 0u : 333u) << i;
    own += 5 + i;
  }
  EXPECT_EQ(world.counts().computed_prompt_tokens, 333 + own);
}

TEST_P(SchedulerTest, FollowersOfDifferentLengthsTakeWhatTheyShare) {
  World world({.groups = GetParam()});
  const auto prefix = SomePrompt(300, 2);
  std::vector<std::vector<TokenId>> prompts = {With(prefix, 200, 1)};
  for (const size_t cut : {100u, 170u, 171u, 300u, 450u}) {
    const auto begin = prompts[0].begin();
    prompts.push_back(With({begin, begin + cut}, 20, 50 + cut % 7));
  }
  // One is a beginning of the leader's prompt and nothing else.
  prompts.emplace_back(prompts[0].begin(), prompts[0].begin() + 210);
  std::vector<World::Channel> channels;
  for (const auto& prompt : prompts) {
    channels.push_back(world.Ask(prompt, 6));
  }
  world.RunAll();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(World::Read(channels[i]).text, Cold(prompts[i], 6, GetParam()))
        << i;
  }
  EXPECT_EQ(world.counts().computed_prompt_tokens, 500u + 5 * 20 + 1);
}

TEST_P(SchedulerTest, AFollowerTakesOverFromALeaderThatIsCancelled) {
  World world({.groups = GetParam()});
  const auto prefix = SomePrompt(400, 3);
  std::vector<World::Channel> channels;
  for (TokenId i = 0; i < 4; ++i) {
    channels.push_back(world.Ask(With(prefix, 10, i), 8));
  }
  world.Turn();
  world.Turn();
  channels[0]->Cancel();
  world.Turn();
  channels[1]->Cancel();
  world.RunAll();
  EXPECT_EQ(World::Read(channels[0]).reason, FinishReason::kCancelled);
  EXPECT_EQ(World::Read(channels[1]).reason, FinishReason::kCancelled);
  for (TokenId i = 2; i < 4; ++i) {
    EXPECT_EQ(World::Read(channels[i]).text,
              Cold(With(prefix, 10, i), 8, GetParam()));
  }
  // Nothing was computed twice: the two that were cancelled never came to what
  // is their own.
  EXPECT_EQ(world.counts().computed_prompt_tokens, 400u + 2 * 10);
}

TEST_P(SchedulerTest, ACancelledPrefillIsGoneOnWithWhereItGotTo) {
  World world({.groups = GetParam()});
  const auto prompt = SomePrompt(400, 4);
  auto channel = world.Ask(prompt, 5);
  world.Turn();
  world.Turn();
  world.Turn();
  channel->Cancel();
  world.RunAll();
  const Outcome again = world.Answer(prompt, 5);
  EXPECT_EQ(again.usage.reuse.cached, 3 * 64u);
  EXPECT_EQ(again.text, Cold(prompt, 5, GetParam()));
}

TEST_P(SchedulerTest, CancellingAnywhereDisturbsNobody) {
  const auto prefix = SomePrompt(100, 5);
  const std::string expected = Cold(With(prefix, 30, 1), 30, GetParam());
  for (int turn = 0; turn < 40; ++turn) {
    World world({.groups = GetParam(), .max_batch = 2});
    auto victim = world.Ask(With(prefix, 60, 2), 20);
    auto other = world.Ask(With(prefix, 30, 1), 30);
    auto third = world.Ask(With(prefix, 30, 1), 30);
    for (int i = 0; i < turn && !world.scheduler().idle(); ++i) {
      world.Turn();
    }
    victim->Cancel();
    world.RunAll();
    EXPECT_EQ(World::Read(other).text, expected) << turn;
    EXPECT_EQ(World::Read(third).text, expected) << turn;
    world.cache().DemoteAll();
    world.Turn();
    world.cache().DemoteAll();
    EXPECT_EQ(world.pool().used_bytes(), 0u) << turn;
  }
}

TEST_P(SchedulerTest, ACachedRequestDoesNotWaitBehindAColdOne) {
  World world({.groups = GetParam()});
  const auto cached = SomePrompt(300, 6);
  world.Answer(cached, 1);
  auto cold = world.Ask(SomePrompt(3000, 7), 1);
  world.Turn();
  auto warm = world.Ask(With(cached, 5, 1), 4);
  for (int turns = 0; turns < 6; ++turns) {
    world.Turn();
  }
  EXPECT_EQ(World::Read(warm).reason, FinishReason::kLength);
  EXPECT_FALSE(world.scheduler().idle());
  world.RunAll();
  EXPECT_EQ(World::Read(cold).text, Cold(SomePrompt(3000, 7), 1, GetParam()));
}

TEST_P(SchedulerTest, TurnsAreGivenInOrderOfArrival) {
  World world({.groups = GetParam(), .max_batch = 1});
  std::vector<TokenId> first_tokens;
  world.on_step = [&](const models::StepInput& input) {
    if (input.rows[0].position == 0) {
      first_tokens.push_back(input.rows[0].token);
    }
  };
  for (TokenId i = 10; i < 15; ++i) {
    world.Ask(SomePrompt(200 - 10 * i, i), 3);
  }
  world.RunAll();
  EXPECT_EQ(first_tokens, std::vector<TokenId>({10, 11, 12, 13, 14}));
}

// What a reply of 11 ms a token sees of a prompt of 2,000 tokens, at 1 ms each.
struct BesideAPrompt {
  // In order of length.
  std::vector<Clock::Monotonic::duration> gaps;
  Clock::Monotonic::duration prefill{};
};

BesideAPrompt ReplyBesideAPrompt(const WorldOptions& options) {
  World world(options);
  auto reply = world.Ask(SomePrompt(20, 8), 3000);
  std::vector<Clock::Monotonic> tokens;
  world.on_step = [&](const models::StepInput& input) {
    if (input.rows[0].wants_logits && input.rows[0].position >= 20) {
      tokens.push_back(world.clock().Now());
    }
  };
  for (int i = 0; i < 50; ++i) {
    world.Turn();
  }
  const auto began = world.clock().Now();
  const size_t before = tokens.size();
  auto cold = world.Ask(SomePrompt(2000, 9), 1);
  while (!cold->Next(milliseconds(0)).has_value()) {
    world.Turn();
  }
  BesideAPrompt result;
  result.prefill = world.clock().Now() - began;
  for (size_t i = before; i < tokens.size(); ++i) {
    result.gaps.push_back(tokens[i] - tokens[i - 1]);
  }
  std::sort(result.gaps.begin(), result.gaps.end());
  reply->Cancel();
  world.RunAll();
  return result;
}

TEST_P(SchedulerTest, RunningRepliesKeepTheirPaceBesideALongPrompt) {
  const auto [gaps, prefill] = ReplyBesideAPrompt(
      {.groups = GetParam(), .chunk = 512, .max_gap = milliseconds(0)});
  EXPECT_LE(gaps.back(), milliseconds(33));
  EXPECT_GE(gaps[gaps.size() / 2], milliseconds(22));
  // Up to 33 ms a step.
  EXPECT_LE(prefill, milliseconds(2000 * 33 / 17 * 13 / 10));
}

TEST_P(SchedulerTest, OneGapInMoreThanTwentyIsLongForALongPrompt) {
  const auto [gaps, prefill] = ReplyBesideAPrompt({.groups = GetParam(),
                                                   .chunk = 512,
                                                   .max_gap = milliseconds(500),
                                                   .state_every = 512});
  EXPECT_LE(gaps.back(), milliseconds(500));
  EXPECT_LE(gaps[gaps.size() * 95 / 100], milliseconds(12));
  // 500 of 797 ms are its: what would be enough is beyond the limit.
  EXPECT_LE(prefill, milliseconds(2000 * 797 / 500 * 13 / 10));
}

// --- RAM ---

TEST_P(SchedulerTest, RequestsThatHaveNoRoomTogetherAllGetTheirTexts) {
  // A request alone takes up to 19 blocks of a group.
  const uint64_t groups = NumGroups(GetParam());
  for (const bool disk_works : {true, false}) {
    World world({.groups = GetParam(),
                 .chunk = 32,
                 .target_bytes = 10 * kSlot * groups,
                 .hard_cap_bytes = 40 * kSlot * groups});
    world.disk_works = disk_works;
    std::vector<World::Channel> channels;
    for (TokenId i = 0; i < 8; ++i) {
      channels.push_back(world.Ask(SomePrompt(20 + 3 * i, i), 250));
    }
    world.RunAll();
    for (TokenId i = 0; i < 8; ++i) {
      const Outcome outcome = World::Read(channels[i]);
      EXPECT_EQ(outcome.reason, FinishReason::kLength) << outcome.failure;
      EXPECT_EQ(outcome.usage.completion_tokens, 250u);
      EXPECT_EQ(outcome.text, Cold(SomePrompt(20 + 3 * i, i), 250, GetParam()))
          << i;
    }
    EXPECT_GT(world.counts().paused, 0u);
    EXPECT_EQ(world.counts().failed, 0u);
  }
}

TEST_P(SchedulerTest, APausedReplyComesBackFromTheDiskToTheLastToken) {
  // Both begin; the longer one is alone in the end.
  const uint64_t window_slots = GetParam().window > 0 ? 8 : 0;
  const uint64_t state_slots = GetParam().states ? 4 + window_slots / 4 : 0;
  World world({.groups = GetParam(),
               .chunk = 32,
               .target_bytes = 0,
               .hard_cap_bytes = (24 + window_slots + state_slots) * kSlot});
  auto first = world.Ask(SomePrompt(30, 1), 250);
  auto second = world.Ask(SomePrompt(30, 2), 120);
  world.RunAll();
  EXPECT_EQ(World::Read(first).text, Cold(SomePrompt(30, 1), 250, GetParam()));
  EXPECT_EQ(World::Read(second).text, Cold(SomePrompt(30, 2), 120, GetParam()));
  EXPECT_EQ(world.counts().paused, 1u);
  EXPECT_GT(world.cache().stats().tokens_from_tier, 0u);
  // Only the token that was sampled last had to be computed.
  EXPECT_EQ(world.counts().computed_prompt_tokens, 2 * 30u + 1);
  EXPECT_EQ(world.cache().stats().lost_blocks, 0u);
}

TEST_P(SchedulerTest, RequestsWaitWhereTheyWouldHaveNoRoom) {
  const uint64_t groups = NumGroups(GetParam());
  World world({.groups = GetParam(),
               .target_bytes = 40 * kSlot * groups,
               .hard_cap_bytes = 40 * kSlot * groups});
  auto first = world.Ask(SomePrompt(400, 1), 100);
  auto second = world.Ask(SomePrompt(400, 2), 100);
  world.Turn();
  EXPECT_EQ(world.scheduler().running(), groups == 1 ? 1u : 2u);
  world.RunAll();
  EXPECT_EQ(World::Read(first).usage.completion_tokens, 100u);
  EXPECT_EQ(World::Read(second).usage.completion_tokens, 100u);
}

TEST(FittingContextTest, TheContextIsWhatTheRamForOneRequestHolds) {
  const FakeModel model(kBlock, 0);
  cache::BlockPool pool(GeometriesOf(model));
  cache::NullTier tier;
  const FakeClock clock;
  const cache::KvCache cache(CacheConfigFor(model, 0, 10 * kSlot + 5), &pool,
                             &tier, &clock, NullLogger());
  EXPECT_EQ(Scheduler::FittingContext(cache, 1000, 64), 160u);
  EXPECT_EQ(Scheduler::FittingContext(cache, 160, 64), 160u);
  EXPECT_EQ(Scheduler::FittingContext(cache, 97, 64), 97u);
}

TEST_P(SchedulerTest, ARequestAloneIsNeverPaused) {
  const uint64_t groups = NumGroups(GetParam());
  World world({.groups = GetParam(),
               .target_bytes = 0,
               .hard_cap_bytes = 32 * kSlot * groups,
               .context_size = 500});
  const Outcome outcome = world.Answer(SomePrompt(100, 1), 10000);
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.usage.completion_tokens, 400u);
  EXPECT_EQ(world.counts().paused, 0u);
}

// Requests that share, follow, are cancelled, paused and read back, in an order
// that no person would think of.
TEST_P(SchedulerTest, WhateverComesEveryTextIsRightAndNothingLeaks) {
  std::map<std::pair<size_t, uint32_t>, std::string> expected;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId family = 0; family < 4; ++family) {
    for (const size_t length : {17u, 64u, 150u, 333u}) {
      for (TokenId own = 0; own < 3; ++own) {
        prompts.push_back(With(SomePrompt(length, family), 3 + own * 11, own));
      }
    }
  }
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    const uint64_t groups = NumGroups(GetParam());
    World world({.groups = GetParam(),
                 .max_batch = 1 + static_cast<uint32_t>(random() % 8),
                 .chunk = 8 + static_cast<uint32_t>(random() % 100),
                 .target_bytes = (random() % 40) * kSlot * groups,
                 .hard_cap_bytes = (45 + random() % 30) * kSlot * groups});
    struct Asked {
      World::Channel channel;
      size_t prompt;
      uint32_t tokens;
      bool cancelled = false;
    };
    std::vector<Asked> asked;
    for (int i = 0; i < 120; ++i) {
      const size_t prompt = random() % prompts.size();
      const uint32_t tokens = 1 + random() % 90;
      asked.push_back({world.Ask(prompts[prompt], tokens), prompt, tokens});
      for (uint32_t turns = random() % 12; turns > 0; --turns) {
        world.disk_works = random() % 4 != 0;
        world.Turn();
      }
      if (random() % 4 == 0) {
        Asked& victim = asked[asked.size() - 1 - random() % asked.size() / 4];
        victim.channel->Cancel();
        victim.cancelled = true;
      }
    }
    world.disk_works = true;
    world.RunAll();
    for (const Asked& one : asked) {
      const Outcome outcome = World::Read(one.channel);
      ASSERT_TRUE(outcome.failure.ok()) << outcome.failure;
      std::string& text = expected[{one.prompt, one.tokens}];
      if (text.empty()) {
        text = Cold(prompts[one.prompt], one.tokens, GetParam());
      }
      if (one.cancelled && outcome.reason == FinishReason::kCancelled) {
        EXPECT_EQ(text.substr(0, outcome.text.size()), outcome.text);
      } else {
        EXPECT_EQ(outcome.text, text);
      }
    }
    EXPECT_TRUE(world.tier().problems().empty())
        << world.tier().problems().front();
    world.Turn();
    world.cache().DemoteAll();
    EXPECT_EQ(world.pool().used_bytes(), 0u);
  }
}

}  // namespace
}  // namespace everwarm::engine
