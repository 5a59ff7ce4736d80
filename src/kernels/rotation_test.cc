#include "kernels/rotation.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/attention.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::RandomFloats;

// Heads and the parts they are turned by.
const std::pair<uint32_t, uint32_t> kSizes[] = {
    {8, 8},     {16, 16},  {64, 64},     {80, 16},     {96, 32},
    {256, 256}, {576, 64}, {1024, 1024}, {2048, 1024}, {40, 8}};

TEST(RotationTest, PartsAreThePowerOfTwoThatDividesAHead) {
  EXPECT_EQ(RotatedPart(64), 64u);
  EXPECT_EQ(RotatedPart(80), 16u);
  EXPECT_EQ(RotatedPart(96), 32u);
  EXPECT_EQ(RotatedPart(576), 64u);
  EXPECT_EQ(RotatedPart(8), 8u);
  EXPECT_EQ(RotatedPart(4096), 1024u);
  for (const uint32_t dim : {0u, 1u, 4u, 12u, 37u, 100u}) {
    EXPECT_EQ(RotatedPart(dim), 0u) << dim;
  }
}

TEST(RotationTest, GivesTheBitsOfTheTwinOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (const auto& [dim, part] : kSizes) {
      const std::vector<float> x = RandomFloats(dim + 1, dim);
      for (const uint32_t offset : {0u, 1u}) {
        std::vector<float> expected(x.begin() + offset,
                                    x.begin() + offset + dim);
        std::vector<float> got = x;
        RotateHeadReference(expected.data(), dim, part);
        RotateHead(got.data() + offset, dim, part);
        EXPECT_EQ(std::memcmp(expected.data(), got.data() + offset,
                              dim * sizeof(float)),
                  0)
            << dim;
        UnrotateHeadReference(expected.data(), dim, part);
        UnrotateHead(got.data() + offset, dim, part);
        EXPECT_EQ(std::memcmp(expected.data(), got.data() + offset,
                              dim * sizeof(float)),
                  0)
            << dim;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(RotationTest, WhatIsTurnedBackIsWhatItWas) {
  for (const auto& [dim, part] : kSizes) {
    const std::vector<float> x = RandomFloats(dim, dim + 1);
    std::vector<float> got = x;
    RotateHead(got.data(), dim, part);
    UnrotateHead(got.data(), dim, part);
    for (uint32_t i = 0; i < dim; ++i) EXPECT_NEAR(got[i], x[i], 1e-5f);
  }
}

TEST(RotationTest, ScoresOfTurnedHeadsAreTheSame) {
  for (const auto& [dim, part] : kSizes) {
    std::vector<float> a = RandomFloats(dim, 1);
    std::vector<float> b = RandomFloats(dim, 2);
    const auto dot = [&] {
      double sum = 0.0;
      for (uint32_t i = 0; i < dim; ++i) sum += double{a[i]} * double{b[i]};
      return sum;
    };
    const double before = dot();
    RotateHead(a.data(), dim, part);
    RotateHead(b.data(), dim, part);
    EXPECT_NEAR(dot(), before, 1e-4 * std::sqrt(dim)) << dim;
  }
}

TEST(RotationTest, OneLargeNumberIsSharedByItsWholePart) {
  for (const auto& [dim, part] : kSizes) {
    std::vector<float> x(dim, 0.0f);
    x[part - 1] = 1.0f;
    RotateHead(x.data(), dim, part);
    for (uint32_t i = 0; i < dim; ++i) {
      const float each = 1.0f / std::sqrt(static_cast<float>(part));
      EXPECT_FLOAT_EQ(std::abs(x[i]), i < part ? each : 0.0f) << i;
    }
  }
}

}  // namespace
}  // namespace everwarm::kernels
