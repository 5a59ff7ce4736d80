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
#include <vector>

#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "kernels/attention.h"
#include "kernels/f16.h"

namespace everwarm::testing {

inline std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

enum class BlockOrder { kContiguous, kScattered };

// KV of one sequence in the second of two layers. All bytes that no token of
// that layer owns are NaN.
class KvSequence {
 public:
  KvSequence(const kernels::AttentionShape& shape, TokenPos tokens,
             uint32_t seed, BlockOrder order = BlockOrder::kScattered)
      : shape_(shape),
        geometry_(2, shape.block_tokens,
                  {{shape.num_kv_heads, shape.k_dim * 2},
                   {shape.num_kv_heads, shape.v_dim * 2}}) {
    const size_t blocks =
        (tokens + shape.block_tokens - 1) / shape.block_tokens;
    const size_t bytes = std::max<size_t>(1, blocks) * geometry_.slot_bytes();
    memory_.reset(static_cast<std::byte*>(
        ::operator new (bytes, std::align_val_t{kSlotAlignment})));
    std::memset(memory_.get(), 0xFF, bytes);
    std::vector<size_t> slots(blocks);
    std::iota(slots.begin(), slots.end(), 0);
    if (order == BlockOrder::kScattered) {
      std::shuffle(slots.begin(), slots.end(), std::mt19937(seed + 1));
    }
    for (size_t slot : slots) {
      table_.push_back(memory_.get() + slot * geometry_.slot_bytes());
    }
    Fill(tokens, seed);
  }

  const kernels::AttentionShape& shape() const { return shape_; }
  const BlockGeometry& geometry() const { return geometry_; }
  kernels::LayerOffsets offsets() const {
    return {geometry_.PlaneOffset(1, 0), geometry_.PlaneOffset(1, 1)};
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

  // One token of one head; plane 0 is K, plane 1 is V.
  uint16_t* Token(uint32_t plane, uint32_t head, TokenPos pos) const {
    const uint32_t dim = plane == 0 ? shape_.k_dim : shape_.v_dim;
    std::byte* slot = table_[pos / shape_.block_tokens];
    const size_t row =
        size_t{head} * shape_.block_tokens + pos % shape_.block_tokens;
    return reinterpret_cast<uint16_t*>(slot + geometry_.PlaneOffset(1, plane)) +
           row * dim;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete (p, std::align_val_t{kSlotAlignment});
    }
  };

  // The same values whatever the blocks are.
  void Fill(TokenPos tokens, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (TokenPos pos = 0; pos < tokens; ++pos) {
      for (uint32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (uint32_t plane = 0; plane < 2; ++plane) {
          const uint32_t dim = plane == 0 ? shape_.k_dim : shape_.v_dim;
          uint16_t* token = Token(plane, head, pos);
          for (uint32_t i = 0; i < dim; ++i) {
            token[i] = kernels::F32ToF16(normal(random));
          }
        }
      }
    }
  }

  kernels::AttentionShape shape_;
  BlockGeometry geometry_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte*> table_;
};

// Runs one layer on `num_threads` threads.
inline void RunLayer(kernels::AttentionPlan& plan,
                     const kernels::LayerOffsets& offsets, const float* q,
                     float* out, uint32_t num_threads) {
  plan.BeginLayer();
  std::vector<std::thread> threads;
  for (uint32_t t = 1; t < num_threads; ++t) {
    threads.emplace_back([&, t] { plan.Run(offsets, q, out, t); });
  }
  plan.Run(offsets, q, out, 0);
  for (std::thread& thread : threads) thread.join();
}

// All of `rows` in one call.
inline std::vector<float> Attend(const kernels::AttentionShape& shape,
                                 const kernels::LayerOffsets& offsets,
                                 absl::Span<const kernels::AttentionRow> rows,
                                 const float* q, uint32_t num_threads = 1) {
  kernels::AttentionPlan plan;
  plan.Prepare(shape, rows, num_threads);
  std::vector<float> out(rows.size() * shape.num_heads * shape.v_dim);
  RunLayer(plan, offsets, q, out.data(), num_threads);
  return out;
}

}  // namespace everwarm::testing

#endif  // EVERWARM_TESTING_ATTENTION_FIXTURE_H_
