#include "cli/kv_config.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/temp_dir.h"

namespace everwarm::cli {
namespace {

using ::testing::HasSubstr;

class KvConfigTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& json) {
    const std::string path = dir_.File("kv_config.json");
    std::ofstream(path) << json;
    return path;
  }

  TempDir dir_;
};

std::string Error(const std::string& text) {
  const auto scheme = ReadKvScheme(text);
  return scheme.ok() ? "" : std::string(scheme.status().message());
}

TEST_F(KvConfigTest, LayersOfAFileHaveTheirOwnBits) {
  const auto read = ReadKvScheme(Write(
      R"({"default": {"bits": 8}, "layers": {"0": {"bits": 16},
          "2": {"bits": 4, "group_size": 32}}})"));
  ASSERT_TRUE(read.ok()) << read.status();
  const models::KvScheme& scheme = *read;
  EXPECT_EQ(scheme.Layer(0, false), models::LayerScheme());
  EXPECT_EQ(scheme.Layer(1, true).name, "q8");
  EXPECT_EQ(scheme.Layer(2, false).name, "q4g32");
}

TEST_F(KvConfigTest, FirstTokensOfAFileHaveTheirOwnBits) {
  const auto read = ReadKvScheme(
      Write(R"({"default": {"bits": 4}, "layers": {"0": {"bits": 16}},
                "first": {"tokens": 100, "bits": 8, "group_size": 32}})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->first().tokens, 100u);
  EXPECT_EQ(read->first().scheme.name, "q8g32");
  EXPECT_EQ(read->LayerBySpan(0, false, 64).At(1).name, "q8g32");
  EXPECT_EQ(read->LayerBySpan(0, false, 64).At(2).name, "f16");
  // f16, as for layers.
  const auto halves = ReadKvScheme(
      Write(R"({"default": {"bits": 4}, "first": {"tokens": 1}})"));
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_EQ(halves->first().scheme.name, "f16");
}

TEST_F(KvConfigTest, WhatIsWrongOfFirstTokensIsNamed) {
  EXPECT_THAT(Error(Write(R"({"first": 64})")),
              HasSubstr("first: not an object"));
  EXPECT_THAT(Error(Write(R"({"first": [64]})")),
              HasSubstr("first: not an object"));
  EXPECT_THAT(Error(Write(R"({"first": {"bits": 16}})")),
              HasSubstr("first: \"tokens\" is missing"));
  for (const char* tokens : {"0", "-1", "1.5", "\"64\"", "null", "[1]",
                             "1048577", "18446744073709551616"}) {
    EXPECT_THAT(
        Error(Write(std::string(R"({"first": {"tokens": )") + tokens + "}}")),
        HasSubstr("not from 1 to 1048576"))
        << tokens;
  }
  EXPECT_THAT(Error(Write(R"({"first": {"tokens": 64, "bits": 5}})")),
              HasSubstr("first: \"bits\" is 5"));
  EXPECT_THAT(Error(Write(R"({"first": {"tokens": 64, "layers": {}}})")),
              HasSubstr("unknown key \"layers\""));
}

TEST_F(KvConfigTest, WhatIsWrongInAFileIsNamed) {
  EXPECT_THAT(Error(Write("[]")), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error(Write("{")), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error(Write(R"({"bits": 8})")), HasSubstr("\"bits\""));
  EXPECT_THAT(Error(Write(R"({"layers": {"x": {}}})")), HasSubstr("\"x\""));
  EXPECT_THAT(Error(Write(R"({"layers": {"1": {"bits": 3}}})")),
              HasSubstr("layer 1: \"bits\" is 3, not one of 4, 8, 16"));
  EXPECT_THAT(Error(Write(R"({"layers": {"1": {"bits": -8}}})")),
              HasSubstr("-8"));
  EXPECT_THAT(Error(Write(R"({"default": {"group_size": 7}})")),
              HasSubstr("default: \"group_size\" is 7"));
  EXPECT_THAT(Error(Write(R"({"default": 8})")), HasSubstr("not an object"));
}

TEST_F(KvConfigTest, NamesOfCodecsGoThrough) {
  EXPECT_TRUE(ReadKvScheme("q8").ok());
  EXPECT_EQ(ReadKvScheme("q8+f16:64")->first().tokens, 64u);
  EXPECT_THAT(Error("q5"), HasSubstr("q5"));
}

TEST_F(KvConfigTest, AMissingFileIsNamed) {
  EXPECT_THAT(Error("nowhere.json"), HasSubstr("nowhere.json"));
}

}  // namespace
}  // namespace everwarm::cli
