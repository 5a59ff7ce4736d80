#include "base/cpu_list.h"

#include <string>

#include "gtest/gtest.h"

namespace everwarm {
namespace {

using Cpus = std::vector<uint32_t>;

TEST(CpuListTest, NumbersAndRangesAreSortedAndCountOnce) {
  EXPECT_EQ(*ParseCpuList("3"), (Cpus{3}));
  EXPECT_EQ(*ParseCpuList("0-1"), (Cpus{0, 1}));
  EXPECT_EQ(*ParseCpuList("6,0-2,1,4-4"), (Cpus{0, 1, 2, 4, 6}));
}

TEST(CpuListTest, WhatIsNoListIsNamed) {
  for (const char* text : {"", "a", "1,", ",1", "1-", "-1", "2-1", "1-2-3",
                           "1.5", "0x1", "4294967296", "1,,2"}) {
    const auto cpus = ParseCpuList(text);
    EXPECT_FALSE(cpus.ok()) << "'" << text << "'";
  }
  EXPECT_EQ(ParseCpuList("1,x7").status().message(),
            "'x7' is neither a CPU's number nor a range such as 4-7");
  EXPECT_EQ(ParseCpuList("0-99999").status().message(),
            "there is no CPU 99999");
}

TEST(CpuListTest, ThisProcessRunsOnSomeCpu) {
  EXPECT_FALSE(AvailableCpus().empty());
}

}  // namespace
}  // namespace everwarm
