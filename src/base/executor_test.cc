#include "base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "testing/manual_executor.h"

namespace everwarm {
namespace {

TEST(ThreadExecutorTest, RunsEverythingBeforeItIsGone) {
  std::atomic<int> ran = 0;
  {
    ThreadExecutor executor("test", 3);
    for (int i = 0; i < 1000; ++i) {
      executor.Schedule([&ran] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 1000);
}

TEST(ThreadExecutorTest, ATaskMayScheduleAnother) {
  std::atomic<int> ran = 0;
  {
    ThreadExecutor executor("test", 1);
    executor.Schedule([&] { executor.Schedule([&ran] { ++ran; }); });
  }
  EXPECT_EQ(ran, 1);
}

TEST(ManualExecutorTest, RunsInOrderAndOnlyWhenTurned) {
  ManualExecutor executor;
  std::vector<int> order;
  executor.Schedule([&] { order.push_back(1); });
  executor.Schedule([&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(executor.RunOne());
  EXPECT_EQ(order, std::vector<int>({1}));
  EXPECT_EQ(executor.RunAll(), 1u);
  EXPECT_EQ(order, std::vector<int>({1, 2}));
  EXPECT_FALSE(executor.RunOne());
}

}  // namespace
}  // namespace everwarm
