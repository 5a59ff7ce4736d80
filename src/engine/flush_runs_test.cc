#include "engine/flush_runs.h"

#include <future>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::engine {
namespace {

using cache::CacheHarness;
using cache::FullOnly;
using cache::Range;
using std::chrono::seconds;

// Runs over a cache whose disk the test turns by hand.
class FlushRunsTest : public testing::Test {
 protected:
  std::future<DrainOutcome> Ask(seconds timeout, bool demote = false,
                                bool newest_first = false) {
    FlushRuns::Call call;
    call.began = h_.clock().Now();
    call.deadline = call.began + timeout;
    call.demote = demote;
    call.newest_first = newest_first;
    std::future<DrainOutcome> outcome = call.outcome.get_future();
    runs_.Add(std::move(call));
    return outcome;
  }
  // A turn of the engine's loop.
  void Turn(const std::optional<FlushRuns::Hurry>& hurry = std::nullopt) {
    h_.cache().Poll();
    runs_.Settle(hurry);
    runs_.SendAnswers();
  }
  static bool Ready(const std::future<DrainOutcome>& outcome) {
    return outcome.wait_for(seconds(0)) == std::future_status::ready;
  }

  CacheHarness h_{FullOnly()};
  FlushRuns runs_{&h_.cache(), &h_.clock()};
};

TEST_F(FlushRunsTest, WithNothingToWriteItIsDurableAtOnce) {
  auto outcome = Ask(seconds(10));
  Turn();
  EXPECT_TRUE(outcome.get().flush.succeeded());
  EXPECT_TRUE(runs_.empty());
}

// Counts that a caller may look at next are brought up to date in between.
TEST_F(FlushRunsTest, WhatHasEndedIsAnsweredWhenAnswersAreSent) {
  auto outcome = Ask(seconds(10));
  runs_.Settle(std::nullopt);
  EXPECT_TRUE(runs_.empty());
  EXPECT_FALSE(Ready(outcome));
  runs_.SendAnswers();
  EXPECT_TRUE(Ready(outcome));
}

TEST_F(FlushRunsTest, CallersAtOnceShareOneRunThatTriesEachBlockOnce) {
  h_.Generate(Range(1, 32));
  std::vector<std::future<DrainOutcome>> outcomes;
  for (int i = 0; i < 5; ++i) {
    outcomes.push_back(Ask(seconds(10)));
    Turn();
  }
  EXPECT_EQ(h_.tier().stores().size(), 2u);
  // Tried before the flush, so once more for it, whoever waits.
  EXPECT_EQ(h_.tier().FailStores(absl::UnknownError("io")), 2u);
  Turn();
  EXPECT_EQ(h_.tier().FailStores(absl::UnknownError("io")), 2u);
  Turn();
  EXPECT_TRUE(h_.tier().stores().empty());
  for (auto& outcome : outcomes) {
    ASSERT_TRUE(Ready(outcome));
    const FlushOutcome flush = outcome.get().flush;
    EXPECT_FALSE(flush.succeeded());
    EXPECT_EQ(flush.report.failed, 2u);
    EXPECT_FALSE(flush.timed_out);
  }
}

TEST_F(FlushRunsTest, WhoAsksAfterSomethingNewWasPublishedHearsOfThatToo) {
  h_.Generate(Range(1, 16));
  auto first = Ask(seconds(10));
  Turn();
  h_.Generate(Range(1001, 16));
  auto second = Ask(seconds(10));
  auto third = Ask(seconds(10));
  Turn();
  h_.tier().CompleteStores(1);
  Turn();
  ASSERT_TRUE(Ready(first));
  EXPECT_TRUE(first.get().flush.succeeded());
  EXPECT_FALSE(Ready(second));
  h_.tier().CompleteStores(1);
  Turn();
  EXPECT_TRUE(second.get().flush.succeeded());
  EXPECT_TRUE(third.get().flush.succeeded());
  EXPECT_TRUE(runs_.empty());
}

TEST_F(FlushRunsTest, ADeadlineEndsOneCallAndNotTheOthers) {
  h_.Generate(Range(1, 32));
  auto hasty = Ask(seconds(1));
  auto patient = Ask(seconds(100));
  Turn();
  h_.tier().CompleteStores(1);
  h_.clock().Advance(seconds(2));
  Turn();
  ASSERT_TRUE(Ready(hasty));
  const FlushOutcome late = hasty.get().flush;
  EXPECT_TRUE(late.timed_out);
  EXPECT_FALSE(late.succeeded());
  EXPECT_EQ(late.report.pending, 1u);
  EXPECT_EQ(late.elapsed, seconds(2));
  EXPECT_FALSE(Ready(patient));
  h_.StoreAll();
  Turn();
  EXPECT_TRUE(patient.get().flush.succeeded());
}

TEST_F(FlushRunsTest, WhoWaitedForTheNextRunInVainStillGetsTheCounts) {
  h_.Generate(Range(1, 16));
  auto first = Ask(seconds(100));
  Turn();
  h_.Generate(Range(1001, 48));
  auto second = Ask(seconds(1));
  Turn();
  h_.clock().Advance(seconds(2));
  Turn();
  ASSERT_TRUE(Ready(second));
  const FlushOutcome late = second.get().flush;
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.report.pending, 4u);
  EXPECT_FALSE(Ready(first));
  h_.StoreAll();
  Turn();
  EXPECT_TRUE(first.get().flush.succeeded());
}

TEST_F(FlushRunsTest, AHurryEndsAllOfThemAfterAMomentOfGrace) {
  h_.Generate(Range(1, 16));
  auto early = Ask(seconds(1000));
  Turn();
  h_.clock().Advance(seconds(100));
  const FlushRuns::Hurry hurry = {h_.clock().Now(), seconds(10)};
  Turn(hurry);
  h_.clock().Advance(seconds(9));
  // Such as that of a stop, after the last step took long.
  auto late = Ask(seconds(1000));
  Turn(hurry);
  EXPECT_FALSE(Ready(early));
  h_.clock().Advance(seconds(1));
  Turn(hurry);
  EXPECT_TRUE(early.get().flush.timed_out);
  h_.clock().Advance(seconds(8));
  Turn(hurry);
  EXPECT_FALSE(Ready(late));
  h_.clock().Advance(seconds(1));
  Turn(hurry);
  EXPECT_TRUE(late.get().flush.timed_out);
  EXPECT_TRUE(runs_.empty());
}

TEST_F(FlushRunsTest, ADrainDropsFromRamWhatIsDurableAndKeepsTheRest) {
  const auto running = h_.Generate(Range(1001, 16));
  h_.Generate(Range(1, 48));
  auto outcome = Ask(seconds(100), /*demote=*/true);
  Turn();
  h_.tier().CompleteStores(3);
  h_.tier().FailStores(absl::UnknownError("io"));
  Turn();
  h_.tier().FailStores(absl::UnknownError("io"));
  Turn();
  const DrainOutcome drained = outcome.get();
  EXPECT_FALSE(drained.flush.succeeded());
  // Of the four blocks one is in use, and one is not durable.
  EXPECT_EQ(drained.demoted_blocks, 2u);
  EXPECT_EQ(drained.ram_used_bytes, 2u * 4096);
  EXPECT_EQ(h_.Check(*running), "");
  EXPECT_EQ(h_.cache().stats().lost_blocks, 0u);
  h_.clock().Advance(seconds(5));
  h_.StoreAll();
  auto again = Ask(seconds(100), /*demote=*/true);
  Turn();
  EXPECT_TRUE(again.get().flush.succeeded());
  EXPECT_EQ(h_.TakeReady(Range(1, 48))->reuse().tier, 47u);
}

TEST_F(FlushRunsTest, AStopWritesTheNewestFirst) {
  h_.tier().set_max_pending_stores(0);
  h_.Generate(Range(1000, 16));
  h_.Generate(Range(2000, 16));
  h_.tier().set_max_pending_stores(1);
  auto outcome = Ask(seconds(100), false, /*newest_first=*/true);
  Turn();
  ASSERT_EQ(h_.tier().stores().size(), 1u);
  EXPECT_EQ(h_.tier().stores().front().identity.tokens, Range(2000, 16));
  h_.tier().CompleteStores();
  Turn();
  h_.StoreAll();
  Turn();
  EXPECT_TRUE(outcome.get().flush.succeeded());
}

TEST_F(FlushRunsTest, AStopWritesTheNewestFirstAlsoBehindAFlushThatRuns) {
  h_.tier().set_max_pending_stores(1);
  for (TokenId first = 1000; first <= 4000; first += 1000) {
    h_.Generate(Range(first, 16));
  }
  auto earlier = Ask(seconds(100));
  Turn();
  h_.Generate(Range(5000, 16));
  h_.Generate(Range(6000, 16));
  auto stop = Ask(seconds(100), false, /*newest_first=*/true);
  std::vector<TokenId> written;
  while (!h_.tier().stores().empty()) {
    written.push_back(h_.tier().stores().front().identity.tokens.front());
    h_.tier().CompleteStores(1);
    Turn();
  }
  EXPECT_EQ(written,
            (std::vector<TokenId>{6000, 5000, 4000, 3000, 2000, 1000}));
  EXPECT_TRUE(earlier.get().flush.succeeded());
  EXPECT_TRUE(stop.get().flush.succeeded());
}

}  // namespace
}  // namespace everwarm::engine
