#include "base/repeated_warning.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>

#include "testing/fake_clock.h"

namespace everwarm {
namespace {

class RepeatedWarningTest : public testing::Test {
 protected:
  // What was logged since the last call.
  std::string Lines() {
    std::string lines = log_.str();
    log_.str("");
    return lines;
  }

  std::ostringstream log_;
  FakeClock clock_;
  RepeatedWarning warning_{
      "blocks were not stored", &clock_, [this] {
        auto logger = std::make_shared<spdlog::logger>(
            "test", std::make_shared<spdlog::sinks::ostream_sink_st>(log_));
        logger->set_pattern("%v");
        return logger;
      }()};
};

TEST_F(RepeatedWarningTest, TheFirstIsSaidAtOnceAndTheRestNowAndThen) {
  warning_.Add(32, "no space");
  EXPECT_EQ(Lines(), "32 blocks were not stored: no space\n");
  for (int i = 0; i < 1000; ++i) {
    clock_.Advance(std::chrono::milliseconds(59));
    warning_.Add(1, "no space");
  }
  EXPECT_EQ(Lines(), "");
  clock_.Advance(std::chrono::seconds(2));
  warning_.Add(1, "still none");
  EXPECT_EQ(Lines(),
            "1001 more blocks were not stored in the last 61 s (1033 in all): "
            "still none\n");
}

TEST_F(RepeatedWarningTest, ThatItGoesWellAgainIsSaidOnce) {
  warning_.Recovered();
  EXPECT_EQ(Lines(), "");
  warning_.Add(1, "no space");
  warning_.Add(4, "no space");
  Lines();
  warning_.Recovered();
  EXPECT_EQ(Lines(), "");
  clock_.Advance(RepeatedWarning::kEvery);
  warning_.Recovered();
  EXPECT_EQ(Lines(), "5 blocks were not stored, and now it goes well again\n");
  warning_.Recovered();
  EXPECT_EQ(Lines(), "");
  // And what comes then is a first one.
  warning_.Add(2, "no space");
  EXPECT_EQ(Lines(), "2 blocks were not stored: no space\n");
}

}  // namespace
}  // namespace everwarm
