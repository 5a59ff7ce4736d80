#include "engine/local_engine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/kv_cache.h"
#include "testing/engine_harness.h"
#include "testing/fake_model.h"

namespace everwarm::engine {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kBlock = 16;

// A disk that accepts everything and never finishes anything.
class StalledTier final : public cache::Tier {
 public:
  absl::Status Store(cache::StoreRequest request) override {
    held_.push_back(std::move(request));
    return absl::OkStatus();
  }
  void Load(cache::LoadRequest) override {}
  void Remove(const BlockKey&) override {}
  void Touch(absl::Span<const BlockKey>) override {}
  std::vector<cache::TierEvent> TakeEvents() override { return {}; }
  void SetWakeUp(std::function<void()>) override {}
  cache::TierStats stats() const override { return {.enabled = true}; }

 private:
  std::vector<cache::StoreRequest> held_;
};

// A disk that is done at once.
class PromptTier final : public cache::Tier {
 public:
  absl::Status Store(cache::StoreRequest request) override {
    events_.push_back(cache::StoredEvent{request.identity.key, 1});
    return absl::OkStatus();
  }
  void Load(cache::LoadRequest) override {}
  void Remove(const BlockKey&) override {}
  void Touch(absl::Span<const BlockKey>) override {}
  std::vector<cache::TierEvent> TakeEvents() override {
    return std::exchange(events_, {});
  }
  void SetWakeUp(std::function<void()>) override {}
  cache::TierStats stats() const override { return {.enabled = true}; }

 private:
  std::vector<cache::TierEvent> events_;
};

Outcome ReadAll(Reply& reply) {
  return CollectOutcome([&] { return reply.Next(kPatience); });
}

// Model, cache and engine, without a disk unless the test brings one.
class World {
 public:
  explicit World(uint32_t window, LocalEngine::Config config = {},
                 std::unique_ptr<cache::Tier> tier = nullptr)
      : model_(kBlock, window),
        tier_(tier != nullptr ? std::move(tier)
                              : std::make_unique<cache::NullTier>()) {
    constexpr uint64_t kRam = 64 << 20;
    pool_ = std::make_unique<cache::BlockPool>(GeometriesOf(model_));
    cache_ = std::make_unique<cache::KvCache>(
        CacheConfigFor(model_, kRam, kRam), pool_.get(), tier_.get(), &clock_,
        NullLogger());
    engine_ = std::make_unique<LocalEngine>(
        config, LocalEngine::Parts{&model_, &text_, cache_.get(), tier_.get(),
                                   &clock_, NullLogger()});
  }

  FakeModel& model() { return model_; }
  LocalEngine& engine() { return *engine_; }

  std::unique_ptr<Reply> Ask(Request request) {
    auto reply = engine_->Submit(std::move(request));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return std::move(reply).value();
  }
  std::unique_ptr<Reply> Ask(std::vector<TokenId> prompt, uint32_t max_tokens) {
    return Ask(GreedyRequest(std::move(prompt), max_tokens));
  }
  Outcome Answer(std::vector<TokenId> prompt, uint32_t max_tokens) {
    return ReadAll(*Ask(std::move(prompt), max_tokens));
  }

 private:
  FakeModel model_;
  FakeTokenText text_;
  SystemClock clock_;
  // Outlives every share of a block.
  std::unique_ptr<cache::BlockPool> pool_;
  std::unique_ptr<cache::Tier> tier_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<LocalEngine> engine_;
};

// The answer of an engine that has never seen anything.
Outcome Cold(const std::vector<TokenId>& prompt, uint32_t max_tokens,
             uint32_t window) {
  return World(window).Answer(prompt, max_tokens);
}

class LocalEngineTest : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(FullAndWindow, LocalEngineTest,
                         testing::Values(0u, 40u));

TEST_P(LocalEngineTest, ACachedPromptGivesTheSameTextAsAColdOne) {
  World world(GetParam());
  const auto prompt = SomePrompt(200, 1);
  const Outcome cold = world.Answer(prompt, 30);
  EXPECT_EQ(cold.usage.reuse.cached, 0u);
  EXPECT_EQ(cold.usage.prompt_tokens, 200u);
  EXPECT_EQ(cold.usage.completion_tokens, 30u);
  EXPECT_EQ(cold.reason, FinishReason::kLength);
  const Outcome again = world.Answer(prompt, 30);
  EXPECT_EQ(again.text, cold.text);
  EXPECT_EQ(again.usage.reuse.cached, 199u);
}

TEST_P(LocalEngineTest, EveryCutOfACachedPromptIsAnsweredAsIfCold) {
  World world(GetParam());
  const auto prompt = SomePrompt(70, 2);
  world.Answer(prompt, 20);
  for (size_t cut = 1; cut <= prompt.size(); ++cut) {
    std::vector<TokenId> part(prompt.begin(), prompt.begin() + cut);
    part.push_back(static_cast<TokenId>(cut % kEndToken));
    EXPECT_EQ(world.Answer(part, 5).text, Cold(part, 5, GetParam()).text)
        << cut;
  }
}

TEST_P(LocalEngineTest, ChunksOfThePromptDoNotChangeTheText) {
  const auto prompt = SomePrompt(150, 3);
  const std::string text = Cold(prompt, 20, GetParam()).text;
  for (const uint32_t chunk : {1u, 7u, 16u, 33u}) {
    World world(GetParam(), {.prefill_chunk = chunk});
    EXPECT_EQ(world.Answer(prompt, 20).text, text) << chunk;
  }
}

TEST_P(LocalEngineTest, RepliesAtOnceAreTheSameAsAlone) {
  World world(GetParam(), {.max_batch = 3, .prefill_chunk = 24});
  std::vector<std::unique_ptr<Reply>> replies;
  for (TokenId i = 0; i < 7; ++i) {
    replies.push_back(world.Ask(SomePrompt(40 + 13 * i, i), 25));
  }
  for (TokenId i = 0; i < 7; ++i) {
    EXPECT_EQ(ReadAll(*replies[i]).text,
              Cold(SomePrompt(40 + 13 * i, i), 25, GetParam()).text)
        << i;
  }
}

TEST_P(LocalEngineTest, TheNextTurnReusesPromptAndReply) {
  World world(GetParam());
  std::vector<TokenId> history = SomePrompt(100, 4);
  const Outcome first = world.Answer(history, 50);
  for (size_t at = 0; at < first.text.size();) {
    size_t used = 0;
    history.push_back(std::stoi(first.text.substr(at + 1), &used));
    at += used + 2;
  }
  history.push_back(5);
  const Outcome next = world.Answer(history, 10);
  // The reply's last token was never computed.
  EXPECT_EQ(next.usage.reuse.cached, 149u);
  EXPECT_EQ(next.text, Cold(history, 10, GetParam()).text);
}

// A later prompt leaves this one inside its end, as chat templates do.
TEST_P(LocalEngineTest, ABoundaryInThePromptIsAResumePoint) {
  World world(GetParam());
  for (const TokenPos boundary : {150u, 160u, 199u}) {
    const auto prompt = SomePrompt(200, static_cast<TokenId>(boundary));
    Request request = GreedyRequest(prompt, 30);
    request.boundary = boundary;
    const Outcome first = ReadAll(*world.Ask(std::move(request)));
    EXPECT_EQ(first.text, Cold(prompt, 30, GetParam()).text);
    std::vector<TokenId> second(prompt.begin(), prompt.begin() + boundary);
    for (TokenId i = 0; i < 60; ++i) {
      second.push_back((i * 7 + 3) % kEndToken);
    }
    // The second turn goes on from the boundary, and a third from the end of
    // the second.
    Outcome outcome = world.Answer(second, 10);
    EXPECT_EQ(outcome.usage.reuse.cached, boundary);
    EXPECT_EQ(outcome.text, Cold(second, 10, GetParam()).text);
    const auto length = static_cast<TokenPos>(second.size());
    second.push_back(1);
    second.push_back(2);
    outcome = world.Answer(second, 10);
    EXPECT_EQ(outcome.usage.reuse.cached, length);
    EXPECT_EQ(outcome.text, Cold(second, 10, GetParam()).text);
  }
}

TEST(LocalEngineTest, EachTokenComesWithItsProbabilityWhenAskedFor) {
  World world(0);
  Request request = GreedyRequest(SomePrompt(30, 8), 20);
  EXPECT_TRUE(ReadAll(*world.Ask(request)).tokens.empty());
  request.top_logprobs = 3;
  const Outcome outcome = ReadAll(*world.Ask(request));
  ASSERT_EQ(outcome.tokens.size(), 20u);
  std::string text;
  for (const ChosenToken& token : outcome.tokens) {
    absl::StrAppend(&text, "t", token.chosen.token, " ");
    ASSERT_EQ(token.top.size(), 3u);
    // Greedy: the likeliest was chosen.
    EXPECT_EQ(token.top[0].token, token.chosen.token);
    EXPECT_EQ(token.top[0].logprob, token.chosen.logprob);
    EXPECT_LE(token.chosen.logprob, 0.0f);
  }
  EXPECT_EQ(text, outcome.text);
}

TEST(LocalEngineTest, TokensThatAStopStringCutsHaveNoProbabilityEither) {
  World world(0);
  Request request = GreedyRequest(SomePrompt(30, 8), 20);
  const std::string whole = ReadAll(*world.Ask(request)).text;
  request.top_logprobs = 0;
  // From the middle of a token to the middle of another.
  const size_t at = whole.find(' ', whole.size() / 2) + 2;
  request.stops = {whole.substr(at, 6)};
  const Outcome outcome = ReadAll(*world.Ask(request));
  EXPECT_EQ(outcome.stop, request.stops[0]);
  EXPECT_EQ(outcome.text, whole.substr(0, whole.find(request.stops[0])));
  std::string text;
  for (const ChosenToken& token : outcome.tokens) {
    absl::StrAppend(&text, "t", token.chosen.token, " ");
  }
  EXPECT_TRUE(outcome.text.starts_with(text));
  EXPECT_LT(text.size(), outcome.text.size());
  // All but the one that the stop string begins in.
  EXPECT_EQ(outcome.text.find(' ', text.size()), std::string::npos);
}

TEST(LocalEngineTest, ControlTokensHaveTextOnlyWhereTheyAreShown) {
  World world(0);
  Request request = GreedyRequest(SomePrompt(30, 8), 20);
  request.top_logprobs = 0;
  const Outcome plain = ReadAll(*world.Ask(request));
  const TokenId shown = plain.tokens[3].chosen.token;
  request.shown_control_tokens = {shown};
  const Outcome outcome = ReadAll(*world.Ask(request));
  std::string text;
  for (const ChosenToken& token : plain.tokens) {
    const std::string name = std::to_string(token.chosen.token);
    text += token.chosen.token == shown ? "<t" : "t";
    text += name;
    text += token.chosen.token == shown ? "> " : " ";
  }
  EXPECT_EQ(outcome.text, text);
}

TEST(LocalEngineTest, ABiasChangesWhatIsChosen) {
  World world(0);
  Request request = GreedyRequest(SomePrompt(30, 8), 20);
  request.sampling.logit_bias = {{42, 1e6f}};
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += "t42 ";
  }
  EXPECT_EQ(ReadAll(*world.Ask(request)).text, text);
}

TEST(LocalEngineTest, APromptOfOneTokenIsAnswered) {
  World world(0);
  const Outcome first = world.Answer({7}, 4);
  EXPECT_FALSE(first.text.empty());
  const Outcome second = world.Answer({7}, 4);
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.usage.reuse.cached, 0u);
}

TEST(LocalEngineTest, NoTokensWantedStillWarmsTheCache) {
  World world(0);
  const Outcome none = world.Answer(SomePrompt(64, 5), 0);
  EXPECT_EQ(none.text, "");
  EXPECT_EQ(none.reason, FinishReason::kLength);
  EXPECT_EQ(none.usage.completion_tokens, 0u);
  EXPECT_EQ(world.Answer(SomePrompt(64, 5), 1).usage.reuse.cached, 63u);
}

TEST(LocalEngineTest, AReplyEndsWhereTheContextDoes) {
  World world(0, {.context_size = 50});
  const Outcome outcome = world.Answer(SomePrompt(40, 6), 1000);
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.usage.completion_tokens, 10u);
}

TEST(LocalEngineTest, APromptThatDoesNotFitIsRefusedWithBothCounts) {
  World world(0, {.context_size = 50});
  Request request;
  request.prompt = SomePrompt(50, 0);
  const auto refused = world.engine().Submit(std::move(request));
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("50 tokens"), std::string::npos);
  EXPECT_EQ(world.Answer(SomePrompt(49, 0), 10).usage.completion_tokens, 1u);
}

TEST(LocalEngineTest, EmptyPromptsAndForeignTokensAreRefused) {
  World world(0);
  for (const std::vector<TokenId>& bad :
       {std::vector<TokenId>{}, {-1}, {FakeModel::kVocab}}) {
    Request request;
    request.prompt = bad;
    EXPECT_EQ(world.engine().Submit(std::move(request)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(LocalEngineTest, EndOfGenerationEndsTheReplyWithoutText) {
  World world(0);
  Request request;
  request.prompt = SomePrompt(10, 7);
  request.max_tokens = 100000;
  request.sampling.temperature = 5;
  request.sampling.top_k = 0;
  request.sampling.top_p = 1;
  request.sampling.min_p = 0;
  request.sampling.seed = 1;
  auto reply = world.engine().Submit(std::move(request));
  ASSERT_TRUE(reply.ok());
  const Outcome outcome = ReadAll(**reply);
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.text.find("t96 "), std::string::npos);
}

TEST(LocalEngineTest, AStopStringEndsTheReplyBeforeIt) {
  World world(0);
  const std::string whole = world.Answer(SomePrompt(30, 8), 20).text;
  Request request;
  request.prompt = SomePrompt(30, 8);
  request.max_tokens = 20;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  const size_t at = whole.size() / 2;
  request.stops = {whole.substr(at, 6)};
  auto reply = world.engine().Submit(std::move(request));
  ASSERT_TRUE(reply.ok());
  const Outcome outcome = ReadAll(**reply);
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.text, whole.substr(0, whole.find(whole.substr(at, 6))));
}

TEST(LocalEngineTest, ACancelledReplyEndsAndWhatItComputedIsReused) {
  World world(0);
  auto reply = world.Ask(SomePrompt(100, 9), 7000);
  ASSERT_TRUE(reply->Next(kPatience).has_value());
  reply->Cancel();
  EXPECT_EQ(ReadAll(*reply).reason, FinishReason::kCancelled);
  const Outcome again = world.Answer(SomePrompt(100, 9), 5);
  EXPECT_EQ(again.usage.reuse.cached, 99u);
  EXPECT_EQ(again.text, Cold(SomePrompt(100, 9), 5, 0).text);
}

TEST(LocalEngineTest, AReaderThatGoesAwayCancelsWaitingAndRunningRequests) {
  World world(0, {.max_batch = 1});
  auto running = world.Ask(SomePrompt(20, 1), 7000);
  auto waiting = world.Ask(SomePrompt(20, 2), 7000);
  waiting.reset();
  ASSERT_TRUE(running->Next(kPatience).has_value());
  running.reset();
  EXPECT_EQ(world.Answer(SomePrompt(20, 3), 3).reason, FinishReason::kLength);
  EXPECT_EQ(world.engine().stats().cancelled, 2u);
}

TEST(LocalEngineTest, AFailedStepFailsItsReplyAndNobodyElse) {
  World world(0);
  world.model().fail_next_step = true;
  const Outcome failed = world.Answer(SomePrompt(20, 1), 3);
  EXPECT_EQ(failed.failure.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(world.Answer(SomePrompt(20, 1), 3).text,
            Cold(SomePrompt(20, 1), 3, 0).text);
  EXPECT_EQ(world.engine().stats().failed, 1u);
}

TEST(LocalEngineTest, TooManyWaitingRequestsAreRefused) {
  World world(0, {.max_batch = 1, .max_waiting = 1});
  auto running = world.Ask(SomePrompt(20, 1), 8000);
  auto waiting = world.Ask(SomePrompt(20, 2), 8000);
  Request request;
  request.prompt = SomePrompt(20, 3);
  EXPECT_EQ(world.engine().Submit(std::move(request)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LocalEngineTest, RequestsStartInOrderOfArrival) {
  World world(0, {.max_batch = 1});
  std::vector<TokenId> first_tokens;
  world.model().on_step = [&](const models::StepInput& input) {
    if (input.rows[0].position == 0) {
      first_tokens.push_back(input.rows[0].token);
    }
  };
  std::vector<std::unique_ptr<Reply>> replies;
  for (TokenId i = 10; i < 15; ++i) {
    replies.push_back(world.Ask(SomePrompt(20, i), 3));
  }
  for (auto& reply : replies) {
    ReadAll(*reply);
  }
  EXPECT_EQ(first_tokens, std::vector<TokenId>({10, 11, 12, 13, 14}));
}

TEST(LocalEngineTest, DecodeGoesOnWhileTheDiskStandsStill) {
  World world(0, {}, std::make_unique<StalledTier>());
  const Outcome outcome = world.Answer(SomePrompt(100, 1), 200);
  EXPECT_EQ(outcome.text, Cold(SomePrompt(100, 1), 200, 0).text);
  const FlushOutcome flush = world.engine().Flush(milliseconds(50));
  EXPECT_TRUE(flush.timed_out);
  EXPECT_FALSE(flush.report.durable());
  EXPECT_GT(flush.report.pending, 0u);
}

TEST_P(LocalEngineTest, AReplyThatWaitsEndsWhenAllItComputedIsDurable) {
  World world(GetParam(), {}, std::make_unique<PromptTier>());
  Request request;
  request.prompt = SomePrompt(100, 1);
  request.max_tokens = 30;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.wait_durable = kPatience;
  auto reply = world.engine().Submit(std::move(request));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(ReadAll(**reply).usage.durable_tokens, 129u);
}

TEST(LocalEngineTest, AReplyDoesNotWaitForADiskThatStandsStillForEver) {
  World world(0, {}, std::make_unique<StalledTier>());
  Request request;
  request.prompt = SomePrompt(100, 1);
  request.max_tokens = 3;
  request.ignore_eos = true;
  request.wait_durable = milliseconds(30);
  auto reply = world.engine().Submit(std::move(request));
  ASSERT_TRUE(reply.ok());
  const Outcome outcome = ReadAll(**reply);
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.usage.durable_tokens, 0u);
}

TEST(LocalEngineTest, ADrainEmptiesRamWhileTheServerGoesOn) {
  World world(0, {}, std::make_unique<PromptTier>());
  world.Answer(SomePrompt(100, 1), 20);
  const DrainOutcome drained = world.engine().Drain(kPatience);
  EXPECT_TRUE(drained.flush.succeeded());
  EXPECT_EQ(drained.demoted_blocks, 8u);
  EXPECT_EQ(drained.ram_used_bytes, 0u);
  EXPECT_FALSE(world.Answer(SomePrompt(50, 2), 5).text.empty());
}

TEST(LocalEngineTest, WithoutATierAFlushSaysSo) {
  World world(0);
  world.Answer(SomePrompt(40, 1), 2);
  const FlushOutcome flush = world.engine().Flush(kPatience);
  EXPECT_TRUE(flush.report.no_tier);
  EXPECT_FALSE(flush.report.durable());
  EXPECT_FALSE(flush.timed_out);
}

TEST(LocalEngineTest, StopLetsRunningRepliesFinishAndRefusesNewOnes) {
  World world(0);
  auto reply = world.Ask(SomePrompt(20, 1), 100);
  world.engine().Stop(kPatience);
  EXPECT_EQ(ReadAll(*reply).reason, FinishReason::kLength);
  Request request;
  request.prompt = SomePrompt(20, 1);
  EXPECT_EQ(world.engine().Submit(std::move(request)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(LocalEngineTest, AStopInAHurryDoesNotWaitForADiskThatStandsStill) {
  World world(0, {.least_stop_flush = milliseconds(30)},
              std::make_unique<StalledTier>());
  auto endless = world.Ask(SomePrompt(20, 1), 7000);
  ASSERT_TRUE(endless->Next(kPatience).has_value());
  FlushOutcome outcome;
  std::thread stop([&] { outcome = world.engine().Stop(kPatience); });
  world.engine().CancelAll();
  stop.join();
  EXPECT_EQ(ReadAll(*endless).reason, FinishReason::kCancelled);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_FALSE(outcome.nothing_lost());
  EXPECT_GT(outcome.report.pending, 0u);
  EXPECT_GT(outcome.report.pending_bytes, 0u);
  EXPECT_LT(outcome.elapsed, kPatience / 2);
}

TEST(LocalEngineTest, StopCutsRepliesAtTheDeadline) {
  World world(0, {.context_size = 1 << 20});
  auto reply = world.Ask(SomePrompt(20, 1), 1 << 20);
  world.engine().Stop(milliseconds(0));
  EXPECT_EQ(ReadAll(*reply).reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace everwarm::engine
