// A row's bits depend on its query and its KV alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/attention.h"
#include "kernels/numerics.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::testing::Attend;
using everwarm::testing::BlockOrder;
using everwarm::testing::CodecPairs;
using everwarm::testing::FirstCodecs;
using everwarm::testing::KvSequence;
using everwarm::testing::RandomFloats;
using everwarm::testing::Rotate;

AttentionShape Shape(uint32_t heads, uint32_t kv_heads, uint32_t dim) {
  AttentionShape shape;
  shape.num_heads = heads;
  shape.num_kv_heads = kv_heads;
  shape.k_dim = dim;
  shape.v_dim = dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  return shape;
}

// numerics.h once more, in plain C++ over a plain array of KV.
class ContiguousTwin {
 public:
  ContiguousTwin(const AttentionShape& shape, const KvSequence& sequence,
                 TokenPos length)
      : shape_(shape), sequence_(sequence), length_(length) {
    const std::string target = KernelTarget();
    fused_ = target == "AVX2" || target == "AVX3" || target == "AVX3_DL";
  }

  // One query head at one position; `sink` null: it has none.
  std::vector<float> Head(TokenPos position, uint32_t kv_head,
                          const float* query, const float* sink) {
    Load(kv_head);
    const float factor = QueryFactor(shape_);
    q_.clear();
    for (uint32_t i = 0; i < shape_.k_dim; ++i) q_.push_back(query[i] * factor);
    if (shape_.k_rotation != 0) {
      RotateHeadReference(q_.data(), shape_.k_dim, shape_.k_rotation);
    }
    const TokenPos first = FirstVisible(shape_, position);
    Sums row;
    for (TokenPos p = first / kPartitionTokens * kPartitionTokens;
         p <= position; p += kPartitionTokens) {
      const TokenPos end = std::min(position + 1, p + kPartitionTokens);
      Fold(Partition(std::max(first, p), end), row);
    }
    if (sink != nullptr) AddSink(*sink * kLog2E, row);
    for (float& v : row.value) v *= 1.0f / row.sum;
    if (shape_.v_rotation != 0) {
      UnrotateHeadReference(row.value.data(), shape_.v_dim, shape_.v_rotation);
    }
    return row.value;
  }

 private:
  struct Sums {
    float max = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
    std::vector<float> value;
  };

  float Fma(float a, float b, float c) const {
    return fused_ ? std::fma(a, b, c) : a * b + c;
  }
  float Exp2(float x) const {
    return kernels::Exp2(
        x, [this](float a, float b, float c) { return Fma(a, b, c); });
  }

  // Makes the KV of a head plain arrays.
  void Load(uint32_t kv_head) {
    if (loaded_ == kv_head) return;
    loaded_ = kv_head;
    keys_.clear();
    values_.clear();
    for (TokenPos pos = 0; pos < length_; ++pos) {
      const std::vector<float> key = sequence_.Decoded(true, kv_head, pos);
      const std::vector<float> value = sequence_.Decoded(false, kv_head, pos);
      keys_.insert(keys_.end(), key.begin(), key.end());
      values_.insert(values_.end(), value.begin(), value.end());
    }
  }

  float Score(TokenPos pos) const {
    float x = 0.0f;
    for (uint32_t i = 0; i < shape_.k_dim; ++i) {
      x = Fma(q_[i], keys_[size_t{pos} * shape_.k_dim + i], x);
    }
    if (shape_.softcap == 0.0f) return x;
    const float e = Exp2(-std::abs(x));
    return std::copysign((1.0f - e) / (1.0f + e) * ScoreCap(shape_), x);
  }

  Sums Partition(TokenPos begin, TokenPos end) const {
    Sums sums;
    sums.value.assign(shape_.v_dim, 0.0f);
    float lanes[kSumLanes] = {};
    for (TokenPos tile = begin / kTileTokens * kTileTokens; tile < end;
         tile += kTileTokens) {
      const TokenPos first = std::max(begin, tile);
      const TokenPos last = std::min(end, tile + kTileTokens);
      std::vector<float> x;
      float max = sums.max;
      for (TokenPos t = first; t < last; ++t) {
        x.push_back(Score(t));
        max = std::max(max, x.back());
      }
      const float shrink = Exp2(sums.max - max);
      sums.max = max;
      for (float& lane : lanes) lane *= shrink;
      for (float& v : sums.value) v *= shrink;
      for (TokenPos t = first; t < last; ++t) {
        const float p = Exp2(x[t - first] - max);
        lanes[t % kSumLanes] += p;
        for (uint32_t i = 0; i < shape_.v_dim; ++i) {
          sums.value[i] =
              Fma(p, values_[size_t{t} * shape_.v_dim + i], sums.value[i]);
        }
      }
    }
    for (uint32_t half = kSumLanes / 2; half != 0; half /= 2) {
      for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    sums.sum = lanes[0];
    for (float& v : sums.value) v += 0.0f;
    return sums;
  }

  void Fold(const Sums& part, Sums& row) const {
    if (row.value.empty()) {
      row = part;
      return;
    }
    const float max = std::max(row.max, part.max);
    const float a = Exp2(row.max - max);
    const float b = Exp2(part.max - max);
    row.max = max;
    row.sum = Fma(part.sum, b, row.sum * a);
    for (uint32_t i = 0; i < shape_.v_dim; ++i) {
      row.value[i] = Fma(part.value[i], b, row.value[i] * a);
    }
  }

  void AddSink(float score, Sums& row) const {
    const float max = std::max(row.max, score);
    const float a = Exp2(row.max - max);
    row.sum = Fma(row.sum, a, Exp2(score - max));
    row.max = max;
    for (float& v : row.value) v *= a;
  }

  AttentionShape shape_;
  const KvSequence& sequence_;
  TokenPos length_;
  bool fused_;
  std::optional<uint32_t> loaded_;
  std::vector<float> q_;
  std::vector<float> keys_;    // [position, k_dim]
  std::vector<float> values_;  // [position, v_dim]
};

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && SameBits(a.data(), b.data(), a.size());
}

// A sequence, rows at its end, their queries, and the rows' results one by one.
struct Case {
  Case(const AttentionShape& the_shape, TokenPos length, uint32_t num_rows,
       uint32_t seed = 1)
      : shape(the_shape),
        sequence(shape, length, seed),
        rows(sequence.Rows(length - num_rows, length)),
        q(RandomFloats(num_rows * shape.num_heads * shape.k_dim, seed + 9)) {
    for (uint32_t r = 0; r < num_rows; ++r) {
      const auto one =
          Attend(shape, sequence.offsets(), {&rows[r], 1}, Query(r));
      alone.insert(alone.end(), one.begin(), one.end());
    }
  }
  const float* Query(size_t row) const {
    return q.data() + row * shape.num_heads * shape.k_dim;
  }
  size_t RowFloats() const { return size_t{shape.num_heads} * shape.v_dim; }

  AttentionShape shape;
  KvSequence sequence;
  std::vector<AttentionRow> rows;
  std::vector<float> q;
  std::vector<float> alone;
};

enum class Sinks { kNone, kSome };

void ExpectLikeTwin(const AttentionShape& shape, TokenPos length,
                    uint32_t num_rows, Sinks with_sinks = Sinks::kNone) {
  KvSequence sequence(shape, length, length + 5);
  const auto rows = sequence.Rows(length - num_rows, length);
  const auto q = RandomFloats(num_rows * shape.num_heads * shape.k_dim, 4);
  const auto sinks = RandomFloats(shape.num_heads, 6);
  const auto sink = [&](uint32_t h) {
    return with_sinks == Sinks::kSome ? &sinks[h] : nullptr;
  };
  const auto got =
      Attend(shape, sequence.offsets(), rows, q.data(), 1, sink(0));
  ContiguousTwin twin(shape, sequence, length);
  const uint32_t ratio = shape.num_heads / shape.num_kv_heads;
  for (uint32_t h = 0; h < shape.num_heads; ++h) {
    for (uint32_t r = 0; r < num_rows; ++r) {
      const size_t head = size_t{r} * shape.num_heads + h;
      const auto expected = twin.Head(rows[r].position, h / ratio,
                                      q.data() + head * shape.k_dim, sink(h));
      ASSERT_TRUE(SameBits(expected.data(), got.data() + head * shape.v_dim,
                           shape.v_dim))
          << "row " << r << " head " << h << " length " << length;
    }
  }
}

TEST(AttentionExactnessTest, BlocksGiveTheBitsOfAContiguousTwin) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (uint32_t block : {16, 64, 256}) {
      AttentionShape shape = Shape(6, 2, 64);
      shape.block_tokens = block;
      ExpectLikeTwin(shape, 1, 1);
      ExpectLikeTwin(shape, 66, 5);
      ExpectLikeTwin(shape, 530, 20);
      ExpectLikeTwin(shape, 1030, 1);
      shape.window = 70;
      ExpectLikeTwin(shape, 550, 40);
      shape.softcap = 3.0f;
      ExpectLikeTwin(shape, 550, 3);
    }
    AttentionShape odd = Shape(5, 1, 37);
    odd.v_dim = 51;
    ExpectLikeTwin(odd, 150, 7);
    ExpectLikeTwin(odd, 150, 1);
    ExpectLikeTwin(Shape(4, 1, 256), 140, 1);
    ExpectLikeTwin(Shape(4, 1, 256), 140, 9);
    ExpectLikeTwin(Shape(2, 2, 80), 140, 1);
    ExpectLikeTwin(Shape(16, 2, 128), 140, 1);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// One head of keys whose beginnings are the values.
AttentionShape LatentShape(uint32_t heads, uint32_t k_dim, uint32_t v_dim) {
  AttentionShape shape = Shape(heads, 1, k_dim);
  shape.v_dim = v_dim;
  shape.v_in_k = true;
  return shape;
}

TEST(AttentionExactnessTest, ValuesInKeysGiveTheBitsOfAContiguousTwin) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (AttentionShape shape :
         {LatentShape(5, 24, 16), LatentShape(3, 37, 29), LatentShape(7, 9, 1),
          LatentShape(2, 32, 32), LatentShape(16, 576, 512)}) {
      for (const PlaneCodec& codec :
           {everwarm::testing::kF16Codec, everwarm::testing::kQ8Codec,
            everwarm::testing::kQ4Codec}) {
        shape.k_codec = codec;
        shape.v_codec = codec;
        ExpectLikeTwin(shape, 1, 1);
        ExpectLikeTwin(shape, 130, 1);
        ExpectLikeTwin(shape, 130, 9);
      }
    }
    ExpectLikeTwin(LatentShape(6, 40, 32), 1030, 3);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AttentionExactnessTest, RowsWithValuesInKeysDoNotFeelHowTheyAreSplit) {
  for (const AttentionShape& shape :
       {LatentShape(9, 40, 32), LatentShape(5, 37, 29)}) {
    const Case c(shape, 2100, 40);
    for (uint32_t threads : {1, 2, 3, 5}) {
      EXPECT_TRUE(SameBits(
          Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
          c.alone))
          << threads << " threads";
    }
  }
}

TEST(AttentionExactnessTest, SinksGiveTheBitsOfAContiguousTwin) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    AttentionShape shape = Shape(6, 2, 64);
    ExpectLikeTwin(shape, 1, 1, Sinks::kSome);
    ExpectLikeTwin(shape, 66, 5, Sinks::kSome);
    ExpectLikeTwin(shape, 1030, 1, Sinks::kSome);
    shape.window = 70;
    ExpectLikeTwin(shape, 550, 40, Sinks::kSome);
    AttentionShape odd = Shape(5, 1, 37);
    odd.v_dim = 51;
    ExpectLikeTwin(odd, 150, 7, Sinks::kSome);
    odd.k_codec = everwarm::testing::kQ8Codec;
    ExpectLikeTwin(odd, 150, 1, Sinks::kSome);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AttentionExactnessTest, RowsWithSinksDoNotFeelHowTheyAreSplit) {
  const AttentionShape shape = Shape(9, 3, 64);
  const Case c(shape, 2100, 40);
  const auto sinks = RandomFloats(9, 6);
  std::vector<float> alone;
  for (uint32_t r = 0; r < 40; ++r) {
    const auto one = Attend(shape, c.sequence.offsets(), {&c.rows[r], 1},
                            c.Query(r), 1, sinks.data());
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_FALSE(SameBits(alone, c.alone)) << "sinks must show";
  for (uint32_t threads : {1, 2, 3, 5}) {
    EXPECT_TRUE(SameBits(Attend(shape, c.sequence.offsets(), c.rows, c.q.data(),
                                threads, sinks.data()),
                         alone))
        << threads << " threads";
  }
}

TEST(AttentionExactnessTest, CodedBlocksGiveTheBitsOfAContiguousTwin) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (const auto& [k_codec, v_codec] : CodecPairs()) {
      AttentionShape shape = Shape(6, 2, 64);
      shape.k_codec = k_codec;
      shape.v_codec = v_codec;
      SCOPED_TRACE(::testing::Message()
                   << "bits " << k_codec.bits << " and " << v_codec.bits);
      ExpectLikeTwin(shape, 1, 1);
      ExpectLikeTwin(shape, 530, 20);
      ExpectLikeTwin(shape, 601, 1);
      shape.block_tokens = 16;
      shape.window = 70;
      ExpectLikeTwin(shape, 150, 40);
    }
    for (const auto& [k_codec, v_codec] : CodecPairs()) {
      AttentionShape shape = Shape(4, 2, 37);
      shape.v_dim = 83;
      shape.k_codec = k_codec;
      shape.v_codec = v_codec;
      ExpectLikeTwin(shape, 90, 5);
      shape.k_dim = 96;
      shape.v_dim = 80;
      ExpectLikeTwin(shape, 90, 1);
      Rotate(shape);
      ExpectLikeTwin(shape, 90, 1);
      ExpectLikeTwin(shape, 90, 9);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AttentionExactnessTest, FirstTokensOfAnotherCodecGiveTheBitsOfATwin) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(KernelTarget());
    for (const auto& [first, name] : FirstCodecs(64)) {
      for (const auto& [k_codec, v_codec] : CodecPairs()) {
        AttentionShape shape = Shape(3, 1, 64);
        shape.block_tokens = 16;
        shape.k_codec = k_codec;
        shape.v_codec = v_codec;
        shape.first = first;
        SCOPED_TRACE(::testing::Message()
                     << name << ", then bits " << k_codec.bits << " and "
                     << v_codec.bits);
        ExpectLikeTwin(shape, 1, 1);
        ExpectLikeTwin(shape, 64, 3);
        ExpectLikeTwin(shape, 65, 1);
        ExpectLikeTwin(shape, 150, 40);
        shape.first.tokens = 192;
        ExpectLikeTwin(shape, 230, 1);
        // A border that is the end of a partition, and one behind it.
        shape.first.tokens = 512;
        ExpectLikeTwin(shape, 520, 20);
        shape.first.tokens = 576;
        ExpectLikeTwin(shape, 601, 1);
        shape.window = 70;
        ExpectLikeTwin(shape, 601, 40);
        Rotate(shape);
        ExpectLikeTwin(shape, 601, 5);
      }
    }
    AttentionShape odd = Shape(5, 1, 37);
    odd.v_dim = 51;
    odd.k_codec = everwarm::testing::kQ4Codec;
    odd.v_codec = everwarm::testing::kQ8Codec;
    odd.first.tokens = 64;
    ExpectLikeTwin(odd, 150, 90);
    ExpectLikeTwin(odd, 150, 1);
    AttentionShape latent = Shape(7, 1, 40);
    latent.v_dim = 32;
    latent.v_in_k = true;
    latent.k_codec = everwarm::testing::kQ4Codec;
    latent.v_codec = latent.k_codec;
    latent.first.tokens = 64;
    ExpectLikeTwin(latent, 130, 70);
    ExpectLikeTwin(latent, 130, 1);
    Rotate(latent);
    ExpectLikeTwin(latent, 130, 1);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(AttentionExactnessTest, RowsAcrossABorderDoNotFeelHowTheyAreSplit) {
  for (const auto& [first, name] : FirstCodecs(576)) {
    for (const auto& [k_codec, v_codec] : CodecPairs()) {
      AttentionShape shape = Shape(9, 3, 64);
      shape.k_codec = k_codec;
      shape.v_codec = v_codec;
      shape.first = first;
      // From before the border to behind it, and all behind it.
      for (const TokenPos length : {600, 1100}) {
        const Case c(shape, length, 70);
        for (uint32_t threads : {1, 3}) {
          EXPECT_TRUE(SameBits(
              Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
              c.alone))
              << name << " first, " << length << " tokens";
        }
      }
    }
  }
}

// Of halves at the start, too, and where the sums are turned back.
TEST(AttentionExactnessTest, WhatComesLaterAmongTheFirstTokensIsNotSeen) {
  AttentionShape shape = Shape(6, 2, 64);
  shape.k_codec = {Coding::kAffine, 8, 32};
  shape.v_codec = {Coding::kNormal, 3, 32};
  shape.first.tokens = 64;
  Rotate(shape);
  Case c(shape, 60, 30);
  for (uint32_t head = 0; head < 2; ++head) {
    std::fill_n(c.sequence.Token(1, head, 50), 64, uint16_t{0x7E00});
  }
  const auto out = Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), 2);
  const size_t clean = 20 * c.RowFloats();
  EXPECT_TRUE(SameBits(out.data(), c.alone.data(), clean));
  for (size_t i = clean; i < out.size(); ++i) {
    ASSERT_TRUE(std::isnan(out[i])) << "what is seen must show";
  }
}

TEST(AttentionExactnessTest, RowsOfCodedBlocksDoNotFeelHowTheyAreSplit) {
  for (const auto& [k_codec, v_codec] : CodecPairs()) {
    AttentionShape shape = Shape(9, 3, 64);
    shape.k_codec = k_codec;
    shape.v_codec = v_codec;
    Rotate(shape);
    const Case c(shape, 1100, 70);
    for (uint32_t threads : {1, 3}) {
      EXPECT_TRUE(SameBits(
          Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
          c.alone));
    }
  }
}

TEST(AttentionExactnessTest, RowsDoNotFeelHowTheyAreSplitIntoCalls) {
  for (const AttentionShape& shape :
       {Shape(9, 3, 64), Shape(4, 1, 128), Shape(2, 2, 33)}) {
    const Case c(shape, 700, 200);
    for (uint32_t step : {1, 2, 3, 7, 31, 32, 33, 64, 199, 200}) {
      std::vector<float> out;
      for (uint32_t r = 0; r < 200; r += step) {
        const uint32_t count = std::min<uint32_t>(step, 200 - r);
        const auto some = Attend(shape, c.sequence.offsets(),
                                 {&c.rows[r], count}, c.Query(r));
        out.insert(out.end(), some.begin(), some.end());
      }
      EXPECT_TRUE(SameBits(out, c.alone)) << "calls of " << step;
    }
  }
}

TEST(AttentionExactnessTest, AChunkOf512IsItsRowsOneByOne) {
  AttentionShape shape = Shape(3, 1, 64);
  for (uint32_t window : {0, 100, 512}) {
    shape.window = window;
    const Case c(shape, 900, 512);
    for (uint32_t threads : {1, 2}) {
      EXPECT_TRUE(SameBits(
          Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
          c.alone));
    }
  }
}

TEST(AttentionExactnessTest, ThreadsDoNotShow) {
  for (uint32_t num_rows : {1, 2, 40}) {
    const Case c(Shape(6, 2, 64), 2100, num_rows);
    for (uint32_t threads : {1, 2, 3, 5}) {
      for (int repeat = 0; repeat < 5; ++repeat) {
        EXPECT_TRUE(SameBits(
            Attend(c.shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
            c.alone))
            << threads << " threads, " << num_rows << " rows";
      }
    }
  }
}

TEST(AttentionExactnessTest, OnePlanServesManyLayersAndSteps) {
  AttentionPlan plan;
  for (uint32_t num_rows : {40, 1, 3}) {
    const Case c(Shape(6, 2, 64), 1500 + num_rows, num_rows);
    plan.Prepare(c.shape, c.rows, 3);
    for (int layer = 0; layer < 4; ++layer) {
      std::vector<float> out(c.alone.size());
      everwarm::testing::RunLayer(plan, c.sequence.offsets(), {c.q.data()},
                                  out.data(), 3);
      EXPECT_TRUE(SameBits(out, c.alone));
    }
  }
}

TEST(AttentionExactnessTest, RowsMayComeInAnyOrder) {
  const Case c(Shape(6, 2, 64), 600, 64);
  std::vector<size_t> order(64);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<AttentionRow> rows;
  std::vector<float> q;
  for (size_t r : order) {
    rows.push_back(c.rows[r]);
    q.insert(q.end(), c.Query(r), c.Query(r + 1));
  }
  const auto out = Attend(c.shape, c.sequence.offsets(), rows, q.data(), 2);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_TRUE(SameBits(out.data() + i * c.RowFloats(),
                         c.alone.data() + order[i] * c.RowFloats(),
                         c.RowFloats()));
  }
}

TEST(AttentionExactnessTest, SequencesOfOneCallDoNotMeet) {
  const AttentionShape shape = Shape(9, 3, 64);
  std::vector<std::unique_ptr<Case>> cases;
  cases.push_back(std::make_unique<Case>(shape, 1300, 1, 11));
  cases.push_back(std::make_unique<Case>(shape, 64, 64, 12));
  cases.push_back(std::make_unique<Case>(shape, 5, 1, 13));
  cases.push_back(std::make_unique<Case>(shape, 700, 37, 14));
  cases.push_back(std::make_unique<Case>(shape, 1300, 1, 15));
  std::vector<AttentionRow> rows;
  std::vector<float> q, expected;
  for (const auto& c : cases) {
    rows.insert(rows.end(), c->rows.begin(), c->rows.end());
    q.insert(q.end(), c->q.begin(), c->q.end());
    expected.insert(expected.end(), c->alone.begin(), c->alone.end());
  }
  for (uint32_t threads : {1, 2, 3, 5}) {
    EXPECT_TRUE(SameBits(
        Attend(shape, cases[0]->sequence.offsets(), rows, q.data(), threads),
        expected));
  }
}

TEST(AttentionExactnessTest, ACommonPrefixDoesNotShow) {
  // Sequences that borrow the first blocks of the first one.
  for (uint32_t window : {0, 700}) {
    for (uint32_t heads : {2, 6}) {
      AttentionShape shape = Shape(heads, 2, 64);
      shape.window = window;
      std::vector<std::unique_ptr<Case>> cases;
      std::vector<AttentionRow> rows;
      std::vector<float> q, expected;
      for (uint32_t s = 0; s < 7; ++s) {
        const TokenPos length = s == 4 ? 512 : 1400 + 77 * s;
        cases.push_back(std::make_unique<Case>(shape, length, 1, 20 + s));
        Case& c = *cases.back();
        for (uint32_t b = 0; s != 0 && b < (s == 3 ? 9u : length / 64); ++b) {
          if (b < 1024 / 64)
            c.sequence.table()[b] = cases[0]->sequence.table()[b];
        }
        rows.push_back(c.rows[0]);
        q.insert(q.end(), c.q.begin(), c.q.end());
        const auto alone =
            Attend(shape, c.sequence.offsets(), {&c.rows[0], 1}, c.Query(0));
        expected.insert(expected.end(), alone.begin(), alone.end());
      }
      for (uint32_t threads : {1, 2, 3, 5}) {
        EXPECT_TRUE(SameBits(Attend(shape, cases[0]->sequence.offsets(), rows,
                                    q.data(), threads),
                             expected))
            << threads << " threads";
      }
    }
  }
}

TEST(AttentionExactnessTest, BlockSizeAndPlaceDoNotShow) {
  std::vector<float> expected;
  for (uint32_t block : {16, 32, 64, 128, 256}) {
    for (BlockOrder order : {BlockOrder::kContiguous, BlockOrder::kScattered}) {
      AttentionShape shape = Shape(6, 2, 64);
      shape.block_tokens = block;
      KvSequence sequence(shape, 777, 21, order);
      const auto rows = sequence.Rows(757, 777);
      const auto q = RandomFloats(rows.size() * 6 * 64, 22);
      const auto out = Attend(shape, sequence.offsets(), rows, q.data());
      if (expected.empty()) expected = out;
      EXPECT_TRUE(SameBits(out, expected)) << "blocks of " << block;
    }
  }
}

TEST(AttentionExactnessTest, ReleasedBlocksOfAWindowAreNotTouched) {
  AttentionShape shape = Shape(4, 1, 64);
  shape.window = 40;
  shape.block_tokens = 16;
  Case c(shape, 600, 50);
  // The first row, at 550, sees 511 and on.
  for (size_t i = 0; i < 511 / 16; ++i) c.sequence.table()[i] = nullptr;
  for (uint32_t threads : {1, 3}) {
    EXPECT_TRUE(SameBits(
        Attend(shape, c.sequence.offsets(), c.rows, c.q.data(), threads),
        c.alone));
  }
}

TEST(AttentionExactnessTest, WhatComesLaterIsNotSeen) {
  // Later tokens of the same tile are NaN or infinite; a row that does not see
  // them keeps its bits, alone and beside rows that do. Neighbouring positions,
  // so that both fall into one block of registers for some of them.
  for (uint16_t poison : {0x7C00, 0xFC00, 0x7E00, 0xFFFF}) {
    for (uint32_t before : {18, 19, 20, 21, 22}) {
      Case c(Shape(6, 2, 64), 300, 30);
      for (uint32_t head = 0; head < 2; ++head) {
        for (uint32_t plane = 0; plane < 2; ++plane) {
          std::fill_n(c.sequence.Token(plane, head, 270 + before), 64, poison);
        }
      }
      const auto out =
          Attend(c.shape, c.sequence.offsets(), c.rows, c.q.data(), 2);
      const size_t clean = before * c.RowFloats();
      EXPECT_TRUE(SameBits(out.data(), c.alone.data(), clean));
      for (size_t i = clean; i < out.size(); ++i) {
        ASSERT_TRUE(std::isnan(out[i])) << "poison that is seen must show";
      }
    }
  }
}

TEST(AttentionExactnessTest, ZeroSumsKeepOneSign) {
  // The second tile's scores are so high that the first tile's sums of -1
  // shrink to a negative zero, and its values are negative zeros too. A later
  // token has weight 0 for a row that does not see it; 0 * 1 must not show.
  const AttentionShape shape = Shape(2, 1, 64);
  KvSequence sequence(shape, 80, 1);
  for (TokenPos pos = 0; pos < 80; ++pos) {
    const float key = pos < 64 ? 0.0f : 8.0f;
    const float value = pos < 64 ? -1.0f : pos < 70 ? -0.0f : 1.0f;
    std::fill_n(sequence.Token(0, 0, pos), 64, F32ToF16(key));
    std::fill_n(sequence.Token(1, 0, pos), 64, F32ToF16(value));
  }
  const std::vector<float> q(16 * 2 * 64, 8.0f);
  const auto rows = sequence.Rows(64, 80);
  const auto together = Attend(shape, sequence.offsets(), rows, q.data());
  std::vector<float> alone;
  for (const AttentionRow& row : rows) {
    const auto one = Attend(shape, sequence.offsets(), {&row, 1}, q.data());
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(SameBits(together, alone));
  EXPECT_EQ(together[5 * 2 * 64], 0.0f);
  EXPECT_FALSE(std::signbit(together[5 * 2 * 64]));
}

}  // namespace
}  // namespace everwarm::kernels
