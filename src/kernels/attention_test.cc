// Attention against the scalar reference in double precision.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::Attend;
using everwarm::testing::CodecPairs;
using everwarm::testing::FirstCodecs;
using everwarm::testing::KvSequence;
using everwarm::testing::RandomFloats;
using everwarm::testing::Rotate;

AttentionShape Shape(uint32_t heads, uint32_t kv_heads, uint32_t k_dim,
                     uint32_t v_dim) {
  AttentionShape shape;
  shape.num_heads = heads;
  shape.num_kv_heads = kv_heads;
  shape.k_dim = k_dim;
  shape.v_dim = v_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(k_dim));
  return shape;
}

std::string Name(const AttentionShape& s) {
  return "heads " + std::to_string(s.num_heads) + "/" +
         std::to_string(s.num_kv_heads) + " dims " + std::to_string(s.k_dim) +
         "/" + std::to_string(s.v_dim) + " window " + std::to_string(s.window) +
         " softcap " + std::to_string(s.softcap) + " block " +
         std::to_string(s.block_tokens) + " rotated by " +
         std::to_string(s.k_rotation) + " and " + std::to_string(s.v_rotation);
}

// Scores are sums of k_dim products of about unit size, scaled to unit size;
// their rounding, about sqrt(k_dim) epsilon, is the relative error of weights.
// Values are normal, so at most about 6; 4 is slack.
float Tolerance(const AttentionShape& shape) {
  const float cap = shape.softcap == 0.0f ? 0.0f : shape.softcap;
  return 4 * std::numeric_limits<float>::epsilon() *
         (6 * std::sqrt(static_cast<float>(shape.k_dim)) + 2 * cap + 6);
}

enum class Sinks { kNone, kSome };

void ExpectLikeReference(const AttentionShape& shape, TokenPos length,
                         uint32_t rows, uint32_t num_threads = 1,
                         Sinks with_sinks = Sinks::kNone) {
  SCOPED_TRACE(Name(shape) + " length " + std::to_string(length));
  KvSequence sequence(shape, length, length);
  const auto some = sequence.Rows(length - std::min(rows, length), length);
  const auto q = RandomFloats(some.size() * shape.num_heads * shape.k_dim, 7);
  const auto logits = RandomFloats(shape.num_heads, 8);
  const float* sinks = with_sinks == Sinks::kSome ? logits.data() : nullptr;
  std::vector<float> expected(some.size() * shape.num_heads * shape.v_dim);
  AttentionReference(shape, sequence.offsets(), some, {q.data(), sinks},
                     expected.data());
  const auto got =
      Attend(shape, sequence.offsets(), some, q.data(), num_threads, sinks);
  float worst = 0.0f;
  for (size_t i = 0; i < got.size(); ++i) {
    const float error = std::abs(got[i] - expected[i]);
    worst = error <= worst ? worst : error;  // keeps a NaN
  }
  EXPECT_LE(worst, Tolerance(shape));
}

TEST(AttentionTest, AgreesOverHeadDims) {
  for (uint32_t dim : {1, 3, 8, 24, 33, 64, 72, 80, 96, 128, 256, 512}) {
    ExpectLikeReference(Shape(6, 2, dim, dim), 70, 3);
    ExpectLikeReference(Shape(6, 2, dim, dim), 600, 9);
  }
}

TEST(AttentionTest, AgreesWhereValuesLieInKeys) {
  for (const auto& [k_dim, v_dim] : std::vector<std::pair<uint32_t, uint32_t>>{
           {576, 512}, {48, 32}, {37, 29}, {16, 16}, {2, 1}}) {
    AttentionShape shape = Shape(8, 1, k_dim, v_dim);
    shape.v_in_k = true;
    EXPECT_EQ(KvGeometry(shape, 1).rest.planes().size(), 1u);
    ExpectLikeReference(shape, 70, 3);
    ExpectLikeReference(shape, 600, 9);
    shape.k_codec = everwarm::testing::kQ8Codec;
    shape.v_codec = everwarm::testing::kQ8Codec;
    EXPECT_EQ(KvGeometry(shape, 1).rest.planes().size(), 2u);
    ExpectLikeReference(shape, 600, 1);
    Rotate(shape);
    ExpectLikeReference(shape, 90, 4);
  }
}

TEST(AttentionTest, AgreesWhereKeysAndValuesDifferInWidth) {
  ExpectLikeReference(Shape(4, 2, 192, 128), 100, 5);
  ExpectLikeReference(Shape(4, 2, 64, 256), 100, 5);
  ExpectLikeReference(Shape(4, 2, 40, 9), 100, 5);
  ExpectLikeReference(Shape(4, 2, 17, 88), 100, 5);
}

TEST(AttentionTest, AgreesOverHeadRatios) {
  for (uint32_t ratio : {1, 2, 3, 4, 5, 7, 8, 16, 71}) {
    ExpectLikeReference(Shape(ratio, 1, 64, 64), 200, 1);
    ExpectLikeReference(Shape(2 * ratio, 2, 64, 64), 130, 40);
  }
}

TEST(AttentionTest, AgreesOverLengths) {
  const AttentionShape shape = Shape(9, 3, 64, 64);
  for (TokenPos length :
       {1u,  2u,  3u,  4u,  5u,  7u,   8u,   9u,   15u,  16u,   17u,
        31u, 33u, 63u, 64u, 65u, 127u, 511u, 512u, 513u, 1025u, 1600u}) {
    ExpectLikeReference(shape, length, 1);
    ExpectLikeReference(shape, length, 80);
  }
}

TEST(AttentionTest, AgreesOverBlockSizes) {
  for (uint32_t block : {16, 32, 64, 128, 256}) {
    AttentionShape shape = Shape(4, 2, 64, 64);
    shape.block_tokens = block;
    ExpectLikeReference(shape, 1, 1);
    ExpectLikeReference(shape, 300, 70);
    ExpectLikeReference(shape, 777, 1);
  }
}

TEST(AttentionTest, AgreesOverWindows) {
  for (uint32_t window : {1, 2, 15, 16, 17, 63, 64, 65, 100, 511, 512, 513}) {
    AttentionShape shape = Shape(4, 1, 64, 64);
    shape.window = window;
    shape.block_tokens = 16;
    ExpectLikeReference(shape, 90, 90);
    ExpectLikeReference(shape, 1100, 1);
    ExpectLikeReference(shape, 1100, 150);
  }
}

TEST(AttentionTest, AgreesWithSoftcap) {
  for (float softcap : {0.5f, 5.0f, 50.0f}) {
    AttentionShape shape = Shape(4, 2, 128, 128);
    shape.softcap = softcap;
    ExpectLikeReference(shape, 600, 5);
    shape.window = 40;
    ExpectLikeReference(shape, 600, 50);
  }
}

TEST(AttentionTest, AgreesOverCodecs) {
  for (const auto& [k_codec, v_codec] : CodecPairs()) {
    SCOPED_TRACE(::testing::Message()
                 << "bits " << k_codec.bits << " and " << v_codec.bits);
    for (uint32_t dim : {8, 64, 128, 256, 512}) {
      AttentionShape shape = Shape(6, 2, dim, dim);
      shape.k_codec = k_codec;
      shape.v_codec = v_codec;
      ExpectLikeReference(shape, 300, 1);
      ExpectLikeReference(shape, 130, 30);
      Rotate(shape);
      ExpectLikeReference(shape, 130, 1);
      ExpectLikeReference(shape, 90, 9);
    }
    for (uint32_t dim : {1, 7, 24, 33, 72, 80, 96}) {
      AttentionShape shape = Shape(6, 2, dim, dim + 3);
      shape.k_codec = k_codec;
      shape.v_codec = v_codec;
      ExpectLikeReference(shape, 90, 3);
    }
  }
}

// Borders at the ends of blocks and of tiles, at partitions' ends and within
// them; sequences shorter than the first tokens, just as long, and longer.
TEST(AttentionTest, AgreesWhereTheFirstTokensHaveAnotherCodec) {
  for (const uint32_t block : {16, 32, 64, 128}) {
    for (const uint32_t border : {64u, 128u, 192u, 512u, 576u}) {
      if (border % block != 0) continue;
      for (const auto& [first, name] : FirstCodecs(border)) {
        SCOPED_TRACE(::testing::Message() << name << " to " << border);
        AttentionShape shape = Shape(3, 1, 64, 64);
        shape.block_tokens = block;
        shape.first = first;
        shape.k_codec = {Coding::kAffine, 8, 32};
        shape.v_codec = {Coding::kNormal, 3, 32};
        ExpectLikeReference(shape, 3, 1);
        ExpectLikeReference(shape, border - 1, 1);
        ExpectLikeReference(shape, border, 10);
        ExpectLikeReference(shape, border + 1, 1);
        ExpectLikeReference(shape, border + 40, 50);
        ExpectLikeReference(shape, border + 500, 1, 3);
      }
    }
  }
}

TEST(AttentionTest, AgreesWhereTheFirstOfLatentKeysHaveAnotherCodec) {
  AttentionShape shape = Shape(8, 1, 37, 29);
  shape.v_in_k = true;
  shape.k_codec = everwarm::testing::kQ4Codec;
  shape.v_codec = shape.k_codec;
  shape.first.tokens = 64;
  EXPECT_EQ(KvGeometry(shape, 1).first.planes().size(), 1u);
  EXPECT_EQ(KvGeometry(shape, 1).rest.planes().size(), 2u);
  for (const TokenPos length : {1, 63, 64, 65, 300}) {
    ExpectLikeReference(shape, length, 1);
    ExpectLikeReference(shape, length, 40);
  }
}

// Whatever the shape: some at random, each replayable from its number.
TEST(AttentionTest, AgreesOverRandomShapes) {
  for (uint32_t number = 0; number < 300; ++number) {
    SCOPED_TRACE(::testing::Message() << "number " << number);
    std::mt19937 random(number);
    const auto among = [&](uint32_t low, uint32_t high) {
      return low + random() % (high - low + 1);
    };
    const uint32_t kv_heads = among(1, 3);
    // Every other time of sizes that can be rotated.
    const uint32_t unit = among(0, 1) == 0 ? 8 : 1;
    AttentionShape shape =
        Shape(kv_heads * among(1, 5), kv_heads, unit * among(1, 150 / unit),
              unit * among(1, 150 / unit));
    if (among(0, 1) == 0) Rotate(shape);
    shape.block_tokens = 16u << among(0, 4);
    if (among(0, 2) == 0) shape.window = among(1, 200);
    if (among(0, 3) == 0) shape.softcap = 10.0f;
    const auto pairs = CodecPairs();
    std::tie(shape.k_codec, shape.v_codec) = pairs[random() % pairs.size()];
    const Sinks sinks = among(0, 2) == 0 ? Sinks::kSome : Sinks::kNone;
    if (among(0, 1) == 0) {
      const uint32_t whole = std::max(shape.block_tokens, kCodedTokens);
      const auto firsts = FirstCodecs(whole * among(1, 3));
      shape.first = firsts[random() % firsts.size()].first;
    }
    ExpectLikeReference(shape, among(1, 400), among(1, 40), among(1, 3), sinks);
  }
}

TEST(AttentionTest, AgreesOnSeveralThreads) {
  for (uint32_t threads : {2, 3, 5}) {
    ExpectLikeReference(Shape(9, 3, 64, 64), 1700, 1, threads);
    ExpectLikeReference(Shape(9, 3, 64, 64), 700, 100, threads);
  }
}

TEST(AttentionTest, AgreesOnEveryInstructionSet) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    EXPECT_STREQ(KernelTarget(), hwy::TargetName(target));
    ExpectLikeReference(Shape(9, 3, 64, 64), 600, 30);
    ExpectLikeReference(Shape(4, 2, 83, 41), 130, 5);
    AttentionShape shape = Shape(4, 1, 128, 128);
    shape.softcap = 20.0f;
    shape.window = 50;
    ExpectLikeReference(shape, 200, 64);
    ExpectLikeReference(shape, 200, 64, 1, Sinks::kSome);
    ExpectLikeReference(Shape(5, 1, 83, 41), 130, 5, 1, Sinks::kSome);
    AttentionShape mixed = Shape(3, 1, 64, 64);
    mixed.block_tokens = 32;
    for (const auto& [first, name] : FirstCodecs(64)) {
      mixed.first = first;
      for (const auto& [k_codec, v_codec] : CodecPairs()) {
        mixed.k_codec = k_codec;
        mixed.v_codec = v_codec;
        ExpectLikeReference(mixed, 66, 4);
        ExpectLikeReference(mixed, 130, 1);
        AttentionShape rotated = mixed;
        Rotate(rotated);
        ExpectLikeReference(rotated, 130, 3);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AttentionTest, PeakedScoresDoNotOverflow) {
  AttentionShape shape = Shape(2, 1, 64, 64);
  shape.scale = 40.0f;  // scores of some hundred: nearly a hard maximum
  KvSequence sequence(shape, 900, 3);
  const auto rows = sequence.Rows(890, 900);
  const auto q = RandomFloats(rows.size() * 2 * 64, 5);
  std::vector<float> expected(rows.size() * 2 * 64);
  AttentionReference(shape, sequence.offsets(), rows, {q.data()},
                     expected.data());
  const auto got = Attend(shape, sequence.offsets(), rows, q.data());
  for (size_t i = 0; i < got.size(); ++i) {
    // Scores of 1000 are rounded to about 1e-4.
    EXPECT_NEAR(got[i], expected[i], 5e-3f);
  }
}

// However far a sink is above or below the scores.
TEST(AttentionTest, SinksOfAnyHeightTakeTheirShare) {
  const AttentionShape shape = Shape(5, 1, 64, 24);
  KvSequence sequence(shape, 600, 3);
  const auto rows = sequence.Rows(590, 600);
  const auto q = RandomFloats(rows.size() * 5 * 64, 5);
  const std::vector<float> sinks = {-1e4f, -30.0f, 0.0f, 30.0f, 1e4f};
  std::vector<float> expected(rows.size() * 5 * 24);
  AttentionReference(shape, sequence.offsets(), rows, {q.data(), sinks.data()},
                     expected.data());
  const auto got =
      Attend(shape, sequence.offsets(), rows, q.data(), 1, sinks.data());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], Tolerance(shape));
  }
  // The first takes nothing, the last everything.
  EXPECT_NE(got[0], 0.0f);
  EXPECT_EQ(got[4 * 24], 0.0f);
}

TEST(AttentionTest, AnEmptyCallDoesNothing) {
  const AttentionShape shape = Shape(2, 1, 64, 64);
  EXPECT_TRUE(Attend(shape, {}, {}, nullptr, 2).empty());
}

}  // namespace
}  // namespace everwarm::kernels
