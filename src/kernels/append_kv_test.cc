// Writing KV into blocks, and half precision itself.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/attention.h"
#include "kernels/f16.h"
#include "kernels/numerics.h"
#include "kernels/rotation.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::KvSequence;
using everwarm::testing::RandomFloats;

TEST(HalfTest, EveryHalfMeansItsValueAndComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = F16ToF32(static_cast<uint16_t>(half));
    const int exponent = half >> 10 & 31;
    const int mantissa = half & 1023;
    const float sign = half >> 15 != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
      if (mantissa != 0) continue;
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(mantissa, -24));
    } else {
      EXPECT_EQ(value, sign * std::ldexp(1024 + mantissa, exponent - 25));
    }
    EXPECT_EQ(F32ToF16(value), half);
  }
}

TEST(HalfTest, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const double low = F16ToF32(static_cast<uint16_t>(half));
    // Above the largest half, the next would be 65536.
    const double high =
        half == 0x7BFF ? 65536.0 : F16ToF32(static_cast<uint16_t>(half + 1));
    const float middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(F32ToF16(middle), half + (half & 1));
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), half);
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), half + 1);
    EXPECT_EQ(F32ToF16(-middle), 0x8000 | (half + (half & 1)));
  }
  EXPECT_EQ(F32ToF16(1e30f), 0x7C00);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(NumericsTest, Exp2KeepsItsErrorBound) {
  const auto fma = [](float a, float b, float c) { return std::fma(a, b, c); };
  const auto unfused = [](float a, float b, float c) { return a * b + c; };
  double worst = 0.0;
  for (float x = 0.0f; x > -125.0f; x -= 0.00037f) {
    const double exact = std::exp2(double{x});
    worst = std::max(worst, std::abs(double{Exp2(x, fma)} / exact - 1));
    worst = std::max(worst, std::abs(double{Exp2(x, unfused)} / exact - 1));
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(Exp2(0.0f, fma), 1.0f);
  EXPECT_EQ(Exp2(-126.0f, fma), 0.0f);
  EXPECT_EQ(Exp2(-std::numeric_limits<float>::infinity(), fma), 0.0f);
}

AttentionShape Shape(uint32_t k_dim, uint32_t v_dim) {
  AttentionShape shape;
  shape.block_tokens = 16;
  shape.num_heads = 6;
  shape.num_kv_heads = 3;
  shape.k_dim = k_dim;
  shape.v_dim = v_dim;
  return shape;
}

// All bytes of a slot, as they are.
std::vector<std::byte> Bytes(KvSequence& sequence) {
  std::vector<std::byte> bytes;
  for (std::byte* slot : sequence.table()) {
    bytes.insert(bytes.end(), slot,
                 slot + sequence.geometry().rest.slot_bytes());
  }
  return bytes;
}

TEST(AppendKvTest, ValuesInKeysAreNotWrittenAgain) {
  AttentionShape shape = Shape(45, 31);
  shape.v_in_k = true;
  KvSequence got(shape, 60, 1);
  KvSequence expected(shape, 60, 1);
  const auto k = RandomFloats(23 * 3 * 45, 2);
  for (uint32_t r = 0; r < 23; ++r) {
    for (uint32_t h = 0; h < 3; ++h) {
      for (uint32_t i = 0; i < 45; ++i) {
        expected.Token(0, h, 30 + r)[i] = F32ToF16(k[(r * 3 + h) * 45 + i]);
      }
    }
  }
  const auto rows = got.Rows(30, 53);
  for (uint32_t t = 0; t < 2; ++t) {
    AppendKv(shape, got.offsets(), rows, k.data(), nullptr, t, 2);
  }
  EXPECT_EQ(Bytes(got), Bytes(expected));
}

TEST(AppendKvTest, WritesItsTokensAndNothingElse) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (uint32_t num_threads : {1, 2, 3, 7}) {
      const AttentionShape shape = Shape(44, 61);
      KvSequence got(shape, 60, 1);
      KvSequence expected(shape, 60, 1);
      const auto k = RandomFloats(23 * 3 * 44, 2);
      const auto v = RandomFloats(23 * 3 * 61, 3);
      for (uint32_t r = 0; r < 23; ++r) {
        for (uint32_t h = 0; h < 3; ++h) {
          for (uint32_t i = 0; i < 44; ++i) {
            expected.Token(0, h, 30 + r)[i] = F32ToF16(k[(r * 3 + h) * 44 + i]);
          }
          for (uint32_t i = 0; i < 61; ++i) {
            expected.Token(1, h, 30 + r)[i] = F32ToF16(v[(r * 3 + h) * 61 + i]);
          }
        }
      }
      const auto rows = got.Rows(30, 53);
      for (uint32_t t = 0; t < num_threads; ++t) {
        AppendKv(shape, got.offsets(), rows, k.data(), v.data(), t,
                 num_threads);
      }
      EXPECT_EQ(Bytes(got), Bytes(expected));
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AppendKvTest, CodesEachTokenAsItsBlockIs) {
  AttentionShape shape = Shape(64, 64);
  shape.k_codec = {Coding::kAffine, 8, 32};
  shape.v_codec = {Coding::kNormal, 3, 32};
  shape.first.tokens = 64;
  KvSequence got(shape, 100, 1);
  const auto k = RandomFloats(60 * 3 * 64, 2);
  const auto v = RandomFloats(60 * 3 * 64, 3);
  AppendKv(shape, got.offsets(), got.Rows(30, 90), k.data(), v.data(), 0, 1);
  for (uint32_t r = 0; r < 60; ++r) {
    for (uint32_t h = 0; h < 3; ++h) {
      for (const bool key : {true, false}) {
        const float* from = (key ? k : v).data() + (r * 3 + h) * 64;
        const PlaneCodec codec = 30 + r < 64 ? PlaneCodec()
                                 : key       ? shape.k_codec
                                             : shape.v_codec;
        std::vector<std::byte> indices(codec.IndexBytes(64));
        std::vector<uint16_t> params(codec.ParamBytes(64) / 2);
        std::vector<float> expected(64);
        if (codec.packed()) {
          EncodeHead(codec, from, 64, indices.data(), params.data());
          DecodeHead(codec, indices.data(), params.data(), 64, expected.data());
        } else {
          std::transform(from, from + 64, expected.begin(), [](float number) {
            return F16ToF32(F32ToF16(number));
          });
        }
        ASSERT_EQ(got.Decoded(key, h, 30 + r), expected) << 30 + r;
      }
    }
  }
  // The others are as they were.
  const KvSequence untouched(shape, 100, 1);
  for (const TokenPos pos : {0u, 29u, 90u, 99u}) {
    EXPECT_EQ(got.Decoded(true, 2, pos), untouched.Decoded(true, 2, pos));
    EXPECT_EQ(got.Decoded(false, 2, pos), untouched.Decoded(false, 2, pos));
  }
}

TEST(AppendKvTest, RotatedHeadsAreWhatRotationGivesOfThem) {
  AttentionShape shape = Shape(64, 80);
  shape.k_codec = {Coding::kAffine, 4, 64};
  shape.v_codec = shape.k_codec;
  shape.first.tokens = 64;
  AttentionShape rotated = shape;
  rotated.k_rotation = 64;
  rotated.v_rotation = 16;
  std::vector<float> k = RandomFloats(100 * 3 * 64, 2);
  std::vector<float> v = RandomFloats(100 * 3 * 80, 3);
  KvSequence got(rotated, 100, 1);
  AppendKv(rotated, got.offsets(), got.Rows(0, 100), k.data(), v.data(), 0, 1);
  for (size_t head = 0; head < 300; ++head) {
    RotateHead(k.data() + head * 64, 64, 64);
    RotateHead(v.data() + head * 80, 80, 16);
  }
  KvSequence expected(shape, 100, 1);
  AppendKv(shape, expected.offsets(), expected.Rows(0, 100), k.data(), v.data(),
           0, 1);
  EXPECT_EQ(Bytes(got), Bytes(expected));
}

// A rotation would make one of them all numbers of the head.
TEST(AppendKvTest, NumbersThatAreNoneStayAlone) {
  AttentionShape shape = Shape(64, 64);
  shape.k_rotation = 64;
  shape.v_rotation = 64;
  std::vector<float> k = RandomFloats(3 * 64, 2);
  k[5] = std::numeric_limits<float>::quiet_NaN();
  k[70] = std::numeric_limits<float>::infinity();
  KvSequence got(shape, 1, 1);
  AppendKv(shape, got.offsets(), got.Rows(0, 1), k.data(), k.data(), 0, 1);
  for (const uint32_t head : {0u, 1u}) {
    for (const float number : got.Decoded(true, head, 0)) {
      EXPECT_TRUE(std::isfinite(number)) << head;
    }
  }
  std::vector<float> without(k.begin(), k.begin() + 64);
  without[5] = 0.0f;
  RotateHead(without.data(), 64, 64);
  const std::vector<float> decoded = got.Decoded(true, 0, 0);
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(decoded[i], F16ToF32(F32ToF16(without[i])));
  }
}

TEST(AppendKvTest, RoundsAlikeOnEveryInstructionSet) {
  std::mt19937 random(5);
  std::vector<float> values;
  while (values.size() < 96 * 3 * 40) {
    // Any mantissa and sign; exponents from below a half's to above it.
    const auto exponent = static_cast<uint32_t>(127 - 27 + random() % 46);
    values.push_back(std::bit_cast<float>(
        (static_cast<uint32_t>(random()) & 0x807FFFFFu) | exponent << 23));
  }
  const AttentionShape shape = Shape(96, 96);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    KvSequence got(shape, 40, 1);
    AppendKv(shape, got.offsets(), got.Rows(0, 40), values.data(),
             values.data(), 0, 1);
    for (uint32_t r = 0; r < 40; ++r) {
      for (uint32_t h = 0; h < 3; ++h) {
        for (uint32_t i = 0; i < 96; ++i) {
          const float value = values[(r * 3 + h) * 96 + i];
          ASSERT_EQ(got.Token(0, h, r)[i], F32ToF16(value)) << value;
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace everwarm::kernels
