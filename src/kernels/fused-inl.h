// A tile for up to four query rows, as in decode: halves become floats in
// registers, once for all rows, and are never stored. The sums are those of
// tile-inl.h, bit for bit.
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

constexpr uint32_t kMaxFusedRows = 4;

#if EVERWARM_HAS_F16

// sums[r] += q[r] * keys for 16 or 8 dimensions from `i` of 8 tokens.
template <int kRows, int kDims>
HWY_INLINE void AddDims(const uint16_t* const* rows, const float* q,
                        size_t k_dim, size_t i, V8 (&sums)[kRows]) {
  const auto add = [&](size_t j, V8 key) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(hn::Set(D8(), q[r * k_dim + i + j]), key, sums[r]);
    }
  };
  if constexpr (kDims == 16) {
    ForKeys16(rows, i, add);
  } else {
    ForKeys8(rows, i, add);
  }
}

// scores[r][t] = q[r] * key[t] for the tokens of panels [first, last). Two
// groups of 8 tokens go side by side, because each is one chain of sums.
// Requires: k_dim is a multiple of 8.
template <int kRows>
HWY_NOINLINE void FusedScores(const uint16_t* const* rows,
                              const uint16_t* const* next, uint32_t k_dim,
                              uint32_t first, uint32_t last,
                              const float* HWY_RESTRICT q,
                              float* HWY_RESTRICT scores) {
  const D8 d;
  for (uint32_t t = first * kPanel; t < last * kPanel; t += kPanel) {
    if (next != nullptr) {
      for (uint32_t j = 0; j < kPanel; ++j) PrefetchRow(next[t + j], k_dim);
    }
    V8 low[kRows];
    V8 high[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
    size_t i = 0;
    for (; i + 16 <= k_dim; i += 16) {
      AddDims<kRows, 16>(rows + t, q, k_dim, i, low);
      AddDims<kRows, 16>(rows + t + 8, q, k_dim, i, high);
    }
    for (; i < k_dim; i += 8) {
      AddDims<kRows, 8>(rows + t, q, k_dim, i, low);
      AddDims<kRows, 8>(rows + t + 8, q, k_dim, i, high);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      hn::Store(low[r], d, scores + r * kTileTokens + t);
      hn::Store(high[r], d, scores + r * kTileTokens + t + 8);
    }
  }
}

// Value sums of kVectors * 8 dimensions from `i`.
template <int kRows, int kVectors>
HWY_INLINE void AddValues(const uint16_t* const* rows, uint32_t begin,
                          uint32_t end, size_t i, const float* weights,
                          const float* shrink, float* out, size_t stride) {
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
    const uint16_t* row = rows[t] + i;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V8 value = Promote8(hn::LoadU(DU8(), row + v * 8));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(hn::Set(d, weights[r * kTileTokens + t]), value,
                                sums[r][v]);
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
HWY_NOINLINE void FusedValues(const uint16_t* const* rows,
                              const uint16_t* const* next, uint32_t v_dim,
                              uint32_t begin, uint32_t end,
                              const float* HWY_RESTRICT weights,
                              const float* HWY_RESTRICT shrink,
                              float* HWY_RESTRICT out, size_t stride) {
  // Enough sums to hide the latency of an addition, few enough for registers.
  constexpr int kVectors = kRows <= 1 ? 8 : kRows <= 3 ? 4 : 2;
  size_t i = 0;
  for (; i + kVectors * 8 <= v_dim; i += kVectors * 8) {
    AddValues<kRows, kVectors>(rows, begin, end, i, weights, shrink, out,
                               stride);
  }
  for (; i < v_dim; i += 8) {
    AddValues<kRows, 1>(rows, begin, end, i, weights, shrink, out, stride);
  }
  if (next != nullptr) {
    for (uint32_t t = begin; t < end; ++t) PrefetchRow(next[t], v_dim);
  }
}
#endif  // EVERWARM_HAS_F16

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_FUSED_INL_H_
