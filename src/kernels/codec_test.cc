#include "kernels/codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/f16.h"
#include "kernels/rotation.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::RandomFloats;

struct Coded {
  std::vector<std::byte> indices;
  std::vector<uint16_t> params;
};

Coded Encode(const PlaneCodec& codec, const std::vector<float>& x) {
  const auto dim = static_cast<uint32_t>(x.size());
  Coded coded{std::vector<std::byte>(codec.IndexBytes(dim)),
              std::vector<uint16_t>(codec.ParamBytes(dim) / 2)};
  EncodeHead(codec, x.data(), dim, coded.indices.data(), coded.params.data());
  return coded;
}

std::vector<float> RoundTrip(const PlaneCodec& codec,
                             const std::vector<float>& x) {
  const auto dim = static_cast<uint32_t>(x.size());
  const Coded coded = Encode(codec, x);
  std::vector<float> out(dim);
  DecodeHead(codec, coded.indices.data(), coded.params.data(), dim, out.data());
  return out;
}

// The range of each group over 255.
TEST(CodecTest, AffineNumbersOfEightBitsAreWithinHalfAStep) {
  for (const uint32_t dim : {1u, 37u, 64u, 80u, 256u}) {
    const std::vector<float> x = RandomFloats(dim, dim);
    const std::vector<float> got = RoundTrip({Coding::kAffine, 8, 32}, x);
    for (uint32_t i = 0; i < dim; ++i) {
      const auto begin = x.begin() + i / 32 * 32;
      const auto end = std::min(begin + 32, x.end());
      const auto [low, high] = std::minmax_element(begin, end);
      const float step = (*high - *low) / 255.0f;
      // The bias and the scale are halves: 2^-11 of each.
      const float rounding = (std::abs(*low) + (*high - *low)) * 0x1p-10f;
      EXPECT_NEAR(got[i], x[i], step / 2 + rounding) << i << " of " << dim;
    }
  }
}

TEST(CodecTest, AffineBytesAreAsTheFormatSays) {
  // Scale 1, bias -2: indices 0, 1, 2, 3 in two bits each, then 3, 2, 1, 0.
  const PlaneCodec codec = {Coding::kAffine, 2, 8};
  const Coded coded = Encode(codec, {-2, -1, 0, 1, 1, 0, -1, -2});
  ASSERT_EQ(coded.params.size(), 2u);
  EXPECT_EQ(F16ToF32(coded.params[0]), 1.0f);
  EXPECT_EQ(F16ToF32(coded.params[1]), -2.0f);
  EXPECT_EQ(coded.indices, (std::vector<std::byte>{std::byte{0b11100100},
                                                   std::byte{0b00011011}}));
}

TEST(CodecTest, EqualNumbersOfAGroupComeBackAsTheirHalf) {
  for (const float value : {0.0f, -0.0f, 1.5f, -300.0f, 0x1p-20f}) {
    const std::vector<float> got =
        RoundTrip({Coding::kAffine, 4, 64}, std::vector<float>(64, value));
    for (const float x : got) EXPECT_EQ(x, F16ToF32(F32ToF16(value)));
  }
}

TEST(CodecTest, WhatCannotBeStoredBecomesTheNearestThatCan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Coding coding : {Coding::kAffine, Coding::kNormal}) {
    std::vector<float> x = RandomFloats(64, 3);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    x[7] = kInfinity;
    x[9] = -kInfinity;
    x[11] = 1e30f;
    for (const float got : RoundTrip({coding, 8, 32}, x)) {
      EXPECT_TRUE(std::isfinite(got));
    }
  }
  std::vector<float> x(64, 1.0f);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(RoundTrip({Coding::kAffine, 8, 64}, x)[5], 0.0f);
}

// Mean squared errors of the quantisers for normal numbers (Max 1960, table I).
TEST(CodecTest, NormalNumbersHaveTheErrorOfLloydMax) {
  const std::pair<uint32_t, double> kErrors[] = {
      {2, 0.1175}, {3, 0.03454}, {4, 0.009497}, {5, 0.002499}};
  for (const auto& [bits, expected] : kErrors) {
    double error = 0.0;
    double power = 0.0;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      const std::vector<float> x = RandomFloats(128, seed);
      const std::vector<float> got = RoundTrip({Coding::kNormal, bits, 32}, x);
      for (size_t i = 0; i < x.size(); ++i) {
        error += std::pow(got[i] - x[i], 2);
        power += std::pow(x[i], 2);
      }
    }
    EXPECT_NEAR(error / power / expected, 1.0, 0.1) << bits << " bits";
  }
}

// The error over the power of a head that has one large number.
double ErrorBesideALargeNumber(const PlaneCodec& codec, bool rotated) {
  std::vector<float> x = RandomFloats(128, 5);
  x[17] = 50.0f;
  std::vector<float> turned = x;
  if (rotated) RotateHead(turned.data(), 128, 128);
  std::vector<float> got = RoundTrip(codec, turned);
  if (rotated) UnrotateHead(got.data(), 128, 128);
  EXPECT_NEAR(got[17], 50.0f, 5.0f);
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i == 17) continue;
    error += std::pow(got[i] - x[i], 2);
    power += std::pow(x[i], 2);
  }
  return error / power;
}

TEST(CodecTest, RotationKeepsALargeNumberFromSpoilingTheOthers) {
  const PlaneCodec affine = {Coding::kAffine, 4, 64};
  EXPECT_GT(ErrorBesideALargeNumber(affine, false), 0.3);
  EXPECT_LT(ErrorBesideALargeNumber(affine, true), 0.2);
  EXPECT_LT(ErrorBesideALargeNumber({Coding::kNormal, 4, 32}, true), 0.2);
}

TEST(CodecTest, CentroidsAscendAndAreSymmetric) {
  for (const uint32_t bits : {2u, 3u, 4u, 5u, 8u}) {
    const float* centroids = Centroids(bits);
    const uint32_t count = 1u << bits;
    EXPECT_TRUE(std::is_sorted(centroids, centroids + count));
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(centroids[i], -centroids[count - 1 - i]);
    }
  }
  EXPECT_NEAR(Centroids(3)[4], 0.24509f, 1e-5f);
  EXPECT_NEAR(Centroids(3)[7], 2.15195f, 1e-5f);
}

uint64_t BytesPerToken(uint32_t dim, const PlaneCodec& k, const PlaneCodec& v) {
  AttentionShape shape;
  shape.num_kv_heads = 1;
  shape.k_dim = dim;
  shape.v_dim = dim;
  shape.k_codec = k;
  shape.v_codec = v;
  return KvGeometry(shape, 1).rest.token_bytes();
}

TEST(CodecTest, BytesPerTokenAreThoseOfTheCodecs) {
  const PlaneCodec f16;
  const PlaneCodec q8 = {Coding::kAffine, 8, 64};
  const PlaneCodec q4 = {Coding::kAffine, 4, 64};
  const PlaneCodec k8 = {Coding::kAffine, 8, 32};
  const PlaneCodec v3 = {Coding::kNormal, 3, 32};
  EXPECT_EQ(BytesPerToken(128, f16, f16), 512u);
  EXPECT_EQ(BytesPerToken(128, k8, v3), 200u);
  for (const uint32_t dim : {64u, 128u, 256u}) {
    const auto whole = static_cast<double>(BytesPerToken(dim, f16, f16));
    EXPECT_LE(static_cast<double>(BytesPerToken(dim, q8, q8)), 0.54 * whole);
    EXPECT_LE(static_cast<double>(BytesPerToken(dim, q4, q4)), 0.29 * whole);
    EXPECT_LE(static_cast<double>(BytesPerToken(dim, k8, v3)), 0.40 * whole);
  }
}

}  // namespace
}  // namespace everwarm::kernels
