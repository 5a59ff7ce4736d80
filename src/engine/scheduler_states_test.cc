// What a recurrent model computes again: never more than is between two states,
// and never from a state that is another's.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "testing/scheduler_world.h"

namespace everwarm::engine {
namespace {

constexpr uint32_t kEvery = 64;
// Of a turn's end that the next prompt renders otherwise: the cue.
constexpr size_t kCue = 3;

std::vector<TokenId> TokensOf(const std::string& text) {
  std::vector<TokenId> tokens;
  size_t at = 0;
  while ((at = text.find('t', at)) != std::string::npos) {
    tokens.push_back(static_cast<TokenId>(std::stoi(text.substr(++at))));
  }
  return tokens;
}

std::vector<TokenId> Cut(const std::vector<TokenId>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

class SchedulerStatesTest : public testing::TestWithParam<Groups> {
 protected:
  // A chat's prompt ends with a cue behind its boundary.
  Outcome Chat(World& world, const std::vector<TokenId>& prompt,
               uint32_t max_tokens) {
    auto channel = std::make_shared<ReplyChannel>();
    Request request = GreedyRequest(prompt, max_tokens);
    request.boundary = static_cast<TokenPos>(prompt.size() - kCue);
    world.Add(std::move(request), channel);
    world.RunAll();
    return World::Read(channel);
  }
  // Asks, and checks the text against a process that has never seen anything;
  // says how many tokens of the prompt were computed.
  size_t Computed(World& world, const std::vector<TokenId>& prompt,
                  uint32_t max_tokens) {
    const uint64_t before = world.counts().computed_prompt_tokens;
    const Outcome outcome = Chat(world, prompt, max_tokens);
    EXPECT_EQ(outcome.text, Cold(prompt, max_tokens, GetParam()));
    const size_t computed = world.counts().computed_prompt_tokens - before;
    EXPECT_EQ(computed, prompt.size() - outcome.usage.reuse.cached);
    return computed;
  }
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutWindow, SchedulerStatesTest,
                         testing::Values(Groups{0, true}, Groups{40, true}));

TEST_P(SchedulerStatesTest, TurnsAndTheirRepetitionsComputeWhatIsNew) {
  for (const bool restarts : {false, true}) {
    World world({.groups = GetParam()});
    std::vector<std::vector<TokenId>> prompts;
    std::vector<TokenId> history;
    for (TokenId turn = 0; turn < 5; ++turn) {
      const size_t known = history.size();
      prompts.push_back(With(history, turn == 0 ? 500 : 40, turn));
      const size_t fresh = prompts.back().size() - known;
      // The last token of a reply is never computed.
      EXPECT_LE(Computed(world, prompts.back(), 30),
                turn == 0 ? fresh : fresh + 1)
          << turn;
      history = prompts.back();
      for (const TokenId token :
           TokensOf(Cold(prompts.back(), 30, GetParam()))) {
        history.push_back(token);
      }
      if (restarts) {
        world.Turn();
        world.Restart();
      }
    }
    for (const std::vector<TokenId>& prompt : prompts) {
      // Again, and once less a token.
      EXPECT_LE(Computed(world, prompt, 30), kCue);
      EXPECT_LE(Computed(world, Cut(prompt, prompt.size() - 1), 10),
                kCue + kEvery);
      // With another end: of the first turn, which is long and far behind,
      // states on the way were thinned.
      if (&prompt != &prompts.front()) {
        EXPECT_LE(
            Computed(world, With(Cut(prompt, prompt.size() - 20), 9, 3), 5),
            9 + 40 + kEvery);
      }
    }
  }
}

TEST_P(SchedulerStatesTest, TheSecondEditAtOnePlaceComputesWhatIsNewAlone) {
  World world({.groups = GetParam()});
  const auto prompt = SomePrompt(700, 1);
  Computed(world, prompt, 20);
  // As far as it gets from the last state on the way.
  const auto first = Computed(world, With(Cut(prompt, 639), 30, 5), 8);
  EXPECT_LE(first, 30 + kEvery);
  EXPECT_EQ(Computed(world, With(Cut(prompt, 639), 40, 6), 8), 40u);
}

TEST_P(SchedulerStatesTest, PromptsWithoutABoundaryAreRepeatedForOneToken) {
  World world({.groups = GetParam()});
  const auto prompt = SomePrompt(333, 1);
  const Outcome first = world.Answer(prompt, 20);
  const Outcome again = world.Answer(prompt, 20);
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.usage.reuse.cached, 332u);
}

TEST_P(SchedulerStatesTest, AFailedStepLeavesNoState) {
  World world({.groups = GetParam()});
  const auto prompt = SomePrompt(300, 1);
  // The fake writes nothing in a step that fails; a real one may have.
  bool fail = false;
  world.on_step = [&](const models::StepInput& input) {
    if (fail) {
      for (const models::StepSequence& sequence : input.sequences) {
        sequence.groups[0][0][0] ^= std::byte{0xff};
      }
      world.model().fail_next_step = true;
    }
  };
  for (int turns = 1; turns < 12; ++turns) {
    auto channel = world.Ask(prompt, 10);
    for (int i = 0; i < turns && !world.scheduler().idle(); ++i) {
      fail = i + 1 == turns;
      world.Turn();
    }
    fail = false;
    world.RunAll();
    const Outcome again = world.Answer(prompt, 10);
    EXPECT_EQ(again.text, Cold(prompt, 10, GetParam())) << turns;
    EXPECT_EQ(again.usage.reuse.cached > 0, turns > 1) << turns;
  }
}

TEST_P(SchedulerStatesTest, InterleavedConversationsKeepTheirOwnStates) {
  World world({.groups = GetParam(), .max_batch = 3});
  const auto shared = SomePrompt(200, 9);
  std::vector<std::vector<TokenId>> talks(4);
  for (size_t i = 0; i < talks.size(); ++i) {
    talks[i] = With(shared, 10 + i, static_cast<TokenId>(i));
  }
  for (int round = 0; round < 4; ++round) {
    std::vector<World::Channel> channels;
    for (const auto& talk : talks) {
      channels.push_back(world.Ask(talk, 25));
    }
    world.RunAll();
    for (size_t i = 0; i < talks.size(); ++i) {
      const std::string text = World::Read(channels[i]).text;
      EXPECT_EQ(text, Cold(talks[i], 25, GetParam())) << round;
      for (const TokenId token : TokensOf(text)) {
        talks[i].push_back(token);
      }
      talks[i] = With(talks[i], 15, static_cast<TokenId>(round));
    }
  }
}

// Turns, edits, forks, cancelled and failed requests, little RAM, states that
// the disk loses, and restarts, in an order that no person would think of.
TEST_P(SchedulerStatesTest, WhateverHappensEveryTextIsThatOfItsTokens) {
  std::map<std::pair<std::vector<TokenId>, uint32_t>, std::string> expected;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    World world({.groups = GetParam(),
                 .max_batch = 1 + static_cast<uint32_t>(random() % 4),
                 .chunk = 8 + static_cast<uint32_t>(random() % 100),
                 .target_bytes = (random() % 60) * kSlot,
                 .hard_cap_bytes = (100 + random() % 60) * kSlot});
    std::vector<std::vector<TokenId>> known = {SomePrompt(150, 1),
                                               SomePrompt(90, 2)};
    for (int round = 0; round < 25; ++round) {
      struct Asked {
        World::Channel channel;
        std::vector<TokenId> prompt;
        uint32_t tokens;
      };
      std::vector<Asked> asked;
      for (size_t i = 0; i < 1 + random() % 3; ++i) {
        const auto& base = known[random() % known.size()];
        auto prompt = With(Cut(base, base.size() - random() % 40),
                           10 + random() % 40, random() % 3);
        prompt.resize(std::max<size_t>(prompt.size(), 40), 1);
        const uint32_t tokens = 1 + random() % 30;
        asked.push_back({world.Ask(prompt, tokens), prompt, tokens});
        known.push_back(std::move(prompt));
      }
      for (uint32_t turns = random() % 8; turns > 0; --turns) {
        world.model().fail_next_step = random() % 20 == 0;
        world.disk_works = random() % 3 != 0;
        world.Turn();
      }
      world.model().fail_next_step = false;
      if (random() % 3 == 0) {
        asked[random() % asked.size()].channel->Cancel();
      }
      if (random() % 3 == 0) {
        world.tier().FailLoads(absl::DataLossError("damaged"), 1);
      }
      world.disk_works = true;
      world.RunAll();
      for (const Asked& one : asked) {
        const Outcome outcome = World::Read(one.channel);
        std::string& text = expected[{one.prompt, one.tokens}];
        if (text.empty()) {
          text = Cold(one.prompt, one.tokens, GetParam());
        }
        EXPECT_EQ(text.substr(0, outcome.text.size()), outcome.text)
            << seed << ", " << round;
        if (outcome.reason == FinishReason::kLength) {
          EXPECT_EQ(outcome.text, text) << seed << ", " << round;
        }
      }
      if (random() % 6 == 0) {
        world.Turn();
        world.Restart();
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
