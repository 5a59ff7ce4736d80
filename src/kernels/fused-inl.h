// A tile for a few query rows, as in decode: no tile of floats is stored;
// halves become floats in registers, for up to four rows at once. The sums are
// those of tile-inl.h, bit for bit.
#if defined(EVERWARM_KERNELS_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_FUSED_INL_H_
#undef EVERWARM_KERNELS_FUSED_INL_H_
#else
#define EVERWARM_KERNELS_FUSED_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/half-inl.h"
#include "kernels/numerics.h"

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

#if EVERWARM_HAS_F16

// Vectors of 8 per row: enough sums to hide the latency of an addition, few
// enough for 16 registers.
constexpr int FusedVectors(int rows) {
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

// While the keys of a tile are in work its values are on their way, and then
// the keys of the next: what is prefetched fits the L1 cache beside what is
// used, where a load must not wait behind prefetches.
//
// A plane has 2 lines per dimension; half of them are due while keys become
// columns, half during the dot products, where a loop over the dimensions runs
// once per kVectors * 8 tokens.
template <int kVectors>
HWY_INLINE void PrefetchWithScores(PrefetchStream& stream, size_t i) {
  if (i * kVectors % 8 == 0) stream.Next();
}

// All of them are due during value sums, where a loop over the tokens runs once
// per kVectors * 8 dimensions.
template <int kVectors>
HWY_INLINE void PrefetchWithValues(PrefetchStream& stream, size_t t) {
  if constexpr (kVectors == 8) stream.Next();
  if (kVectors >= 4 || t % 2 == 0) stream.Next();
}

// Turns the keys of panels [first, last) into columns [k_dim, kTileTokens].
// Requires: k_dim is a multiple of 8.
HWY_NOINLINE void TransposeKeys(const uint16_t* const* panels, size_t k_dim,
                                uint32_t first, uint32_t last,
                                uint16_t* HWY_RESTRICT columns,
                                PrefetchStream& stream) {
  for (size_t p = first; p < last; ++p) {
    for (size_t i = 0; i < k_dim; i += 8) {
      stream.Next();
      stream.Next();
      uint16_t* to = columns + i * kTileTokens + p * kPanel;
      ForKeys8(panels[p], k_dim, i, [&](size_t j, VU16 v) HWY_ATTR {
        hn::Store(v, DU16(), to + j * kTileTokens);
      });
    }
  }
}

// scores[r] = q[r] * keys for kVectors * 8 tokens.
template <int kRows, int kVectors>
HWY_INLINE void ScoreColumns(const uint16_t* HWY_RESTRICT columns, size_t k_dim,
                             const float* HWY_RESTRICT q,
                             float* HWY_RESTRICT scores,
                             PrefetchStream& stream) {
  const D8 d;
  V8 sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (size_t i = 0; i < k_dim; ++i, columns += kTileTokens) {
    PrefetchWithScores<kVectors>(stream, i);
    V8 element[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) element[r] = hn::Set(d, q[r * k_dim + i]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V8 key = Promote8(hn::Load(DU8(), columns + v * 8));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(element[r], key, sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, scores + r * kTileTokens + v * 8);
    }
  }
}

// scores[r][t] for the tokens of panels [first, last).
template <int kRows>
HWY_NOINLINE void FusedScores(const uint16_t* columns, size_t k_dim,
                              uint32_t first, uint32_t last, const float* q,
                              float* scores, PrefetchStream& stream) {
  constexpr int kVectors = FusedVectors(kRows);
  size_t t = first * kPanel;
  for (; t + kVectors * 8 <= last * kPanel; t += kVectors * 8) {
    ScoreColumns<kRows, kVectors>(columns + t, k_dim, q, scores + t, stream);
  }
  for (; t < last * kPanel; t += kPanel) {
    ScoreColumns<kRows, 2>(columns + t, k_dim, q, scores + t, stream);
  }
}

// Value sums of kVectors * 8 dimensions from `i`.
template <int kRows, int kVectors>
HWY_INLINE void AddValues(const HalfRows& rows, size_t i, uint32_t begin,
                          uint32_t end, const float* HWY_RESTRICT weights,
                          const float* HWY_RESTRICT shrink,
                          float* HWY_RESTRICT out, size_t stride,
                          PrefetchStream& stream) {
  const D8 d;
  V8 sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Mul(hn::Load(d, out + r * stride + i + v * 8),
                           hn::Set(d, shrink[r]));
    }
  }
  for (size_t t = begin; t < end; ++t) {
    PrefetchWithValues<kVectors>(stream, t);
    const uint16_t* row = rows.Token(t) + i;
    V8 weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      weight[r] = hn::Set(d, weights[r * kTileTokens + t]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V8 value = Promote8(hn::LoadU(DU8(), row + v * 8));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(weight[r], value, sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * stride + i + v * 8);
    }
  }
}

// out[r] = out[r] * shrink[r] + weights[r] * values over tokens [begin, end).
// Requires: v_dim is a multiple of 8.
template <int kRows>
HWY_NOINLINE void FusedValues(const HalfRows& rows, size_t v_dim,
                              uint32_t begin, uint32_t end,
                              const float* weights, const float* shrink,
                              float* out, size_t stride,
                              PrefetchStream& stream) {
  constexpr int kVectors = FusedVectors(kRows);
  size_t i = 0;
  for (; i + kVectors * 8 <= v_dim; i += kVectors * 8) {
    AddValues<kRows, kVectors>(rows, i, begin, end, weights, shrink, out,
                               stride, stream);
  }
  for (; i < v_dim; i += 8) {
    AddValues<kRows, 1>(rows, i, begin, end, weights, shrink, out, stride,
                        stream);
  }
}
#endif  // EVERWARM_HAS_F16

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_FUSED_INL_H_
