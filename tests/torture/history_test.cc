// Many short random histories; see history.h. EVERWARM_HISTORY=number plays one
// of them again.
#include "tests/torture/history.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "absl/strings/numbers.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace everwarm::torture {
namespace {

constexpr uint64_t kHistories = EVERWARM_HISTORIES;  // CMakeLists.txt

// Every step, on standard error.
Logger Tracer() {
  auto logger = spdlog::stderr_logger_st("history");
  logger->set_level(spdlog::level::debug);
  logger->set_pattern("%v");
  return logger;
}

TEST(HistoryTest, NothingWrongIsServedAndNothingAcknowledgedIsLost) {
  uint64_t first = 1;
  uint64_t last = kHistories;
  Logger logger = NullLogger();
  if (const char* const number = getenv("EVERWARM_HISTORY")) {
    ASSERT_TRUE(absl::SimpleAtoi(number, &first)) << number;
    last = first;
    logger = Tracer();
  }
  Counts counts;
  for (uint64_t number = first; number <= last && !HasFailure(); ++number) {
    for (const std::string& problem : RunHistory(number, &counts, logger)) {
      ADD_FAILURE() << problem;
    }
  }
  EXPECT_EQ(counts.wrong_bytes, 0u);
  EXPECT_EQ(counts.lost_tokens, 0u);
  RecordProperty("crashes", static_cast<int>(counts.crashes.all()));
  if (first != last) {
    // The histories do what they are for.
    EXPECT_GT(counts.crashes.all(), 2 * kHistories);
    EXPECT_GT(counts.damages.all(), kHistories / 5);
    EXPECT_GT(counts.evictions, kHistories / 10);
    EXPECT_GT(counts.scrub_finds, kHistories / 50);
    EXPECT_GT(counts.acknowledged_tokens, kHistories * 20);
    EXPECT_GT(counts.tokens_compared, kHistories * 400);
  }
}

}  // namespace
}  // namespace everwarm::torture
