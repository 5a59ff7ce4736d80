// A stop at every single call to the disk; see crashes.h.
#include "tests/torture/crashes.h"

#include <gtest/gtest.h>

namespace everwarm::torture {
namespace {

class CrashesTest : public ::testing::TestWithParam<Scene> {};

TEST_P(CrashesTest, AStopAtAnyCallServesNothingWrongAndLosesNothing) {
  Counts counts;
  for (const std::string& problem : StopAtEachCall(GetParam(), 1, &counts)) {
    ADD_FAILURE() << problem;
  }
  EXPECT_EQ(counts.wrong_bytes, 0u);
  EXPECT_EQ(counts.lost_tokens, 0u);
  EXPECT_GT(counts.enumerated_crashes, 4u * 10);
  EXPECT_GT(counts.blocks_read, 0u);
}

INSTANTIATE_TEST_SUITE_P(Scenes, CrashesTest, ::testing::ValuesIn(AllScenes()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : info.param.name) {
                             name += std::isalnum(c) ? c : '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace everwarm::torture
