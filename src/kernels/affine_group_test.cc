#include "kernels/affine_group.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/attention.h"
#include "kernels/f16.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::RandomFloats;

struct Coded {
  AffineParams params;
  std::vector<uint8_t> indices;
  friend bool operator==(const Coded&, const Coded&) = default;

  float Number(size_t i) const {
    return std::fma(F16ToF32(params.scale), static_cast<float>(indices[i]),
                    F16ToF32(params.bias));
  }
};

using Coder = AffineParams (*)(const float*, uint32_t, uint32_t, uint8_t*);

Coded Code(Coder coder, const std::vector<float>& x, uint32_t bits) {
  Coded coded;
  coded.indices.resize(x.size());
  coded.params = coder(x.data(), static_cast<uint32_t>(x.size()), bits,
                       coded.indices.data());
  return coded;
}

double MeanSquaredError(const Coded& coded, const std::vector<float>& x) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += std::pow(double{coded.Number(i)} - double{x[i]}, 2);
  }
  return sum / static_cast<double>(x.size());
}

// The error of the line from the smallest number to the largest.
double ErrorOfTheRange(const std::vector<float>& x, uint32_t bits) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double step = (double{*high} - double{*low}) / ((1 << bits) - 1);
  double sum = 0.0;
  for (const float number : x) {
    const double at = step == 0.0 ? 0.0 : (double{number} - *low) / step;
    sum += std::pow((at - std::round(at)) * step, 2);
  }
  return sum / static_cast<double>(x.size());
}

// Shapes of numbers, and numbers at the ends of what there is.
std::vector<std::vector<float>> Groups() {
  std::vector<std::vector<float>> groups;
  for (const uint32_t count : {1u, 2u, 3u, 4u, 5u, 8u, 24u, 32u, 37u, 64u}) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
      groups.push_back(RandomFloats(count, 100 * count + seed));
    }
    groups.emplace_back(count, 0.0f);
    groups.emplace_back(count, -3.25f);
    groups.emplace_back(count, 65504.0f);
    for (const float large : {1e-40f, 1e-9f, 1.0f, 65504.0f, -65504.0f}) {
      groups.emplace_back(count, 0.0f);
      groups.back()[count / 2] = large;
    }
    groups.emplace_back(count, 65504.0f);
    groups.back()[0] = -65504.0f;
    groups.push_back(RandomFloats(count, count));
    for (float& x : groups.back()) x *= 1e-38f;
  }
  return groups;
}

TEST(AffineGroupTest, GivesTheBitsOfTheTwinOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (const uint32_t bits : {2u, 4u, 5u, 8u}) {
      for (const std::vector<float>& x : Groups()) {
        const Coded got = Code(&CodeAffineGroup, x, bits);
        EXPECT_EQ(got, Code(&CodeAffineGroupReference, x, bits))
            << bits << " bits of " << x.size();
        for (const uint8_t index : got.indices) EXPECT_LT(index, 1 << bits);
        for (size_t i = 0; i < x.size(); ++i) {
          EXPECT_TRUE(std::isfinite(got.Number(i)));
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AffineGroupTest, TheFitIsNearerThanTheRange) {
  for (const uint32_t bits : {2u, 4u, 5u}) {
    double fitted = 0.0;
    double by_range = 0.0;
    for (uint32_t seed = 0; seed < 500; ++seed) {
      const std::vector<float> x = RandomFloats(64, seed);
      fitted += MeanSquaredError(Code(&CodeAffineGroup, x, bits), x);
      by_range += ErrorOfTheRange(x, bits);
    }
    EXPECT_LT(fitted, (bits == 2 ? 0.8 : 0.93) * by_range) << bits << " bits";
  }
}

TEST(AffineGroupTest, NumbersOnALineComeBackAsTheyWere) {
  for (const uint32_t bits : {2u, 4u, 5u, 8u}) {
    std::vector<float> x;
    for (uint32_t i = 0; i < 1u << bits; ++i) {
      x.push_back(0.5f * static_cast<float>(i) - 3.0f);
    }
    const Coded coded = Code(&CodeAffineGroup, x, bits);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(coded.Number(i), x[i], 2e-3f) << bits << " bits, " << i;
    }
  }
}

// The rest of a group of 64 is one of fewer.
TEST(AffineGroupTest, OneNumberThatIsFarFromTheOthersIsKept) {
  for (const uint32_t count : {2u, 32u, 37u, 64u}) {
    std::vector<float> x(count, 1.0f);
    x[1] = -200.0f;
    const Coded coded = Code(&CodeAffineGroup, x, 4);
    EXPECT_NEAR(coded.Number(1), -200.0f, 0.2f);
    EXPECT_NEAR(coded.Number(0), 1.0f, 0.2f);
  }
}

}  // namespace
}  // namespace everwarm::kernels
