// Sequences with random KV in blocks, for tests and benchmarks of attention.
#ifndef EVERWARM_TESTING_ATTENTION_FIXTURE_H_
#define EVERWARM_TESTING_ATTENTION_FIXTURE_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/f16.h"
#include "kernels/kv_planes.h"
#include "kernels/rotation.h"

namespace everwarm::testing {

inline std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

inline constexpr kernels::PlaneCodec kF16Codec = {};
inline constexpr kernels::PlaneCodec kQ8Codec = {kernels::Coding::kAffine, 8,
                                                 64};
inline constexpr kernels::PlaneCodec kQ4Codec = {kernels::Coding::kAffine, 4,
                                                 64};

// Pairs of codecs for keys and values: what the product offers, and every
// number of bits.
inline std::vector<std::pair<kernels::PlaneCodec, kernels::PlaneCodec>>
CodecPairs() {
  using kernels::Coding;
  std::vector<std::pair<kernels::PlaneCodec, kernels::PlaneCodec>> pairs = {
      {kF16Codec, kF16Codec},
      {kQ8Codec, kQ8Codec},
      {kQ4Codec, kQ4Codec},
      {kQ8Codec, kF16Codec},
      {{Coding::kAffine, 2, 32}, {Coding::kAffine, 5, 32}},
  };
  for (const uint32_t bits : {2u, 3u, 4u, 5u, 8u}) {
    pairs.push_back({{Coding::kAffine, bits == 3 ? 8 : bits, 32},
                     {Coding::kNormal, bits, 32}});
  }
  return pairs;
}

// What the first positions may be coded in beside another codec: halves, the
// same kind in more bits, and another kind.
inline std::vector<std::pair<kernels::AttentionShape::First, const char*>>
FirstCodecs(uint32_t tokens) {
  using kernels::Coding;
  return {
      {{tokens, kF16Codec, kF16Codec}, "f16"},
      {{tokens, kQ8Codec, kQ8Codec}, "q8"},
      {{tokens, {Coding::kAffine, 8, 32}, {Coding::kNormal, 5, 32}}, "k8v5"}};
}

// Heads rotated by as large parts as can be.
inline void Rotate(kernels::AttentionShape& shape) {
  shape.k_rotation = kernels::RotatedPart(
      shape.v_in_k ? std::gcd(shape.k_dim, shape.v_dim) : shape.k_dim);
  shape.v_rotation =
      shape.v_in_k ? shape.k_rotation : kernels::RotatedPart(shape.v_dim);
}

enum class BlockOrder { kContiguous, kScattered };

// KV of one sequence in the second of two layers. All bytes that no token of
// that layer owns are NaN.
class KvSequence {
 public:
  KvSequence(const kernels::AttentionShape& shape, TokenPos tokens,
             uint32_t seed, BlockOrder order = BlockOrder::kScattered)
      : shape_(shape), geometry_(kernels::KvGeometry(shape, 2)) {
    const size_t blocks =
        (tokens + shape.block_tokens - 1) / shape.block_tokens;
    // Room for either kind of block.
    const size_t slot_bytes =
        std::max(geometry_.first.slot_bytes(), geometry_.rest.slot_bytes());
    const size_t bytes = std::max<size_t>(1, blocks) * slot_bytes;
    memory_.reset(static_cast<std::byte*>(
        ::operator new (bytes, std::align_val_t{kSlotAlignment})));
    std::memset(memory_.get(), 0xFF, bytes);
    std::vector<size_t> slots(blocks);
    std::iota(slots.begin(), slots.end(), 0);
    if (order == BlockOrder::kScattered) {
      std::shuffle(slots.begin(), slots.end(), std::mt19937(seed + 1));
    }
    for (size_t slot : slots) {
      table_.push_back(memory_.get() + slot * slot_bytes);
    }
    Fill(tokens, seed);
  }

  const kernels::AttentionShape& shape() const { return shape_; }
  const BySpan<BlockGeometry>& geometry() const { return geometry_; }
  kernels::LayerOffsets offsets() const {
    return kernels::KvOffsets(shape_, geometry_, 1);
  }
  std::vector<std::byte*>& table() { return table_; }
  kernels::AttentionRow Row(TokenPos position) const {
    return {table_.data(), position};
  }
  std::vector<kernels::AttentionRow> Rows(TokenPos first, TokenPos end) const {
    std::vector<kernels::AttentionRow> rows;
    for (TokenPos p = first; p < end; ++p) rows.push_back(Row(p));
    return rows;
  }

  // Halves of one token of one head, in f16; plane 0 is K, plane 1 is V.
  uint16_t* Token(uint32_t plane, uint32_t head, TokenPos pos) const {
    return reinterpret_cast<uint16_t*>(Coded(plane == 0, head, pos).indices);
  }

  // The numbers of one token of one head as attention sees them.
  std::vector<float> Decoded(bool key, uint32_t head, TokenPos pos) const {
    const kernels::CodedPlane plane = Plane(key, pos);
    const auto [indices, params] = Coded(key, head, pos);
    std::vector<float> numbers(plane.dim);
    kernels::DecodeHead(plane.codec, indices, params, plane.dim,
                        numbers.data());
    numbers.resize(key ? shape_.k_dim : shape_.v_dim);
    return numbers;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete (p, std::align_val_t{kSlotAlignment});
    }
  };

  kernels::CodedPlane Plane(bool key, TokenPos pos) const {
    const kernels::CodedPlanes planes =
        kernels::PlanesAt(shape_, offsets(), pos);
    return key ? planes.k : planes.v;
  }
  kernels::CodedHead Coded(bool key, uint32_t head, TokenPos pos) const {
    return Plane(key, pos).At(table_[pos / shape_.block_tokens], head, pos);
  }

  // The same values whatever the blocks are.
  void Fill(TokenPos tokens, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (TokenPos pos = 0; pos < tokens; ++pos) {
      for (uint32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (const bool key : {true, false}) {
          if (!key && shape_.v_in_k) continue;
          const kernels::CodedPlane plane = Plane(key, pos);
          std::vector<float> numbers(plane.dim);
          for (float& number : numbers) number = normal(random);
          const auto [indices, params] = Coded(key, head, pos);
          if (plane.codec.packed()) {
            kernels::EncodeHead(plane.codec, numbers.data(), plane.dim, indices,
                                params);
          } else {
            std::transform(numbers.begin(), numbers.end(),
                           reinterpret_cast<uint16_t*>(indices),
                           kernels::F32ToF16);
          }
        }
      }
    }
  }

  kernels::AttentionShape shape_;
  BySpan<BlockGeometry> geometry_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte*> table_;
};

// Runs one layer on `num_threads` threads.
inline void RunLayer(kernels::AttentionPlan& plan,
                     const kernels::LayerOffsets& offsets,
                     const kernels::AttentionQueries& queries, float* out,
                     uint32_t num_threads) {
  plan.BeginLayer();
  std::vector<std::thread> threads;
  for (uint32_t t = 1; t < num_threads; ++t) {
    threads.emplace_back([&, t] { plan.Run(offsets, queries, out, t); });
  }
  plan.Run(offsets, queries, out, 0);
  for (std::thread& thread : threads) thread.join();
}

// All of `rows` in one call; `sinks` as in AttentionQueries.
inline std::vector<float> Attend(const kernels::AttentionShape& shape,
                                 const kernels::LayerOffsets& offsets,
                                 absl::Span<const kernels::AttentionRow> rows,
                                 const float* q, uint32_t num_threads = 1,
                                 const float* sinks = nullptr) {
  kernels::AttentionPlan plan;
  plan.Prepare(shape, rows, num_threads);
  std::vector<float> out(rows.size() * shape.num_heads * shape.v_dim);
  RunLayer(plan, offsets, {q, sinks}, out.data(), num_threads);
  return out;
}

}  // namespace everwarm::testing

#endif  // EVERWARM_TESTING_ATTENTION_FIXTURE_H_
