#include "cli/ending.h"

#include <gtest/gtest.h>

#include <future>

#include "cli/commands.h"

namespace everwarm::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(EndingTest, OnlyWhatIsAllOnTheDiskIsAGoodEnd) {
  const Logger logger = NullLogger();
  engine::FlushOutcome outcome;
  outcome.report.entries = 3;
  EXPECT_EQ(ExitCodeOf(outcome, *logger), kExitOk);
  for (uint64_t cache::FlushReport::*lost :
       {&cache::FlushReport::pending, &cache::FlushReport::failed,
        &cache::FlushReport::dropped, &cache::FlushReport::missing}) {
    outcome = {};
    outcome.report.*lost = 1;
    EXPECT_EQ(ExitCodeOf(outcome, *logger), kExitNotDurable);
  }
  outcome = {};
  outcome.timed_out = true;
  EXPECT_EQ(ExitCodeOf(outcome, *logger), kExitNotDurable);
  outcome = {};
  outcome.report.no_tier = true;
  EXPECT_EQ(ExitCodeOf(outcome, *logger), kExitOk);
}

TEST(EndingTest, RepliesLeaveTheDiskItsShareOfAStop) {
  EXPECT_EQ(TimeForReplies(seconds(120)), seconds(110));
  EXPECT_EQ(TimeForReplies(seconds(20)), seconds(10));
  EXPECT_EQ(TimeForReplies(seconds(10)), seconds(5));
  EXPECT_EQ(TimeForReplies(seconds(1)), milliseconds(500));
  EXPECT_EQ(TimeForReplies(seconds(0)), seconds(0));
}

TEST(EndingDeathTest, WhatWaitsForEverIsEndedWithTheCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const EndInTime end(kExitNotDurable, milliseconds(10), NullLogger());
        std::promise<void>().get_future().wait();
      },
      testing::ExitedWithCode(kExitNotDurable), "");
}

TEST(EndingTest, WhatEndsByItselfIsLeftAlone) {
  const EndInTime end(kExitNotDurable, seconds(3600), NullLogger());
}

}  // namespace
}  // namespace everwarm::cli
