#include "base/units.h"

#include <gtest/gtest.h>

namespace everwarm {
namespace {

TEST(UnitsTest, BytesAreParsedWithBinaryAndDecimalUnits) {
  EXPECT_EQ(ParseBytes("4GiB").value(), 4 * kGiB);
  EXPECT_EQ(ParseBytes("1.5MiB").value(), 3 * kMiB / 2);
  EXPECT_EQ(ParseBytes("100GB").value(), 100000000000u);
  EXPECT_EQ(ParseBytes("4096").value(), 4096u);
  EXPECT_EQ(ParseBytes("0").value(), 0u);
}

TEST(UnitsTest, BadSizesNameTheText) {
  for (const char* bad : {"", "GiB", "-1GiB", "4 GiB", "4Gb", "1e3", "1..2GiB",
                          "99999999999TiB"}) {
    const auto parsed = ParseBytes(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(parsed.status().message().find(bad), std::string::npos) << bad;
  }
}

TEST(UnitsTest, DurationsAreParsed) {
  EXPECT_EQ(ParseDuration("300s").value().count(), 300000);
  EXPECT_EQ(ParseDuration("5m").value().count(), 300000);
  EXPECT_EQ(ParseDuration("2d").value(), std::chrono::hours(48));
  EXPECT_EQ(ParseDuration("250ms").value().count(), 250);
  EXPECT_EQ(ParseDuration("2").value().count(), 2000);
  EXPECT_FALSE(ParseDuration("5 parsecs").ok());
}

TEST(UnitsTest, NoDurationLeavesTheRangeOfAClock) {
  const auto longest = ParseDuration("36500d");
  ASSERT_TRUE(longest.ok()) << longest.status();
  EXPECT_EQ(*longest, kLongestDuration);
  const auto now = std::chrono::system_clock::now();
  EXPECT_LT(now - *longest, now);
  EXPECT_GT(now + *longest, now);
  for (const char* bad : {"36501d", "999999d", "106752d", "3153600001s",
                          "99999999999999999999999999d"}) {
    const auto parsed = ParseDuration(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(parsed.status().message().find(bad), std::string::npos) << bad;
    EXPECT_NE(parsed.status().message().find("36500d"), std::string::npos);
  }
  EXPECT_FALSE(ParseDuration(std::string(400, '9')).ok());
}

TEST(UnitsTest, BytesAreShownWithOneDecimal) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(4 * kGiB), "4.0 GiB");
}

}  // namespace
}  // namespace everwarm
