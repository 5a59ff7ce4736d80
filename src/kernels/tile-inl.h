// SIMD pieces of one tile: conversion, dot products, weights, value sums.
//
// Score and value sums are chains of fused multiply-adds per (row, token) and
// per (row, dimension); a block of rows shares loads and nothing else.
#if defined(EVERWARM_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_TILE_INL_H_
#undef EVERWARM_KERNELS_TILE_INL_H_
#else
#define EVERWARM_KERNELS_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/f16.h"
#include "kernels/numerics.h"
#include "kernels/partition.h"

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// At most one panel (16 floats) per vector.
using DF = hn::CappedTag<float, kPanel>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kPanelVectors = kPanel / kLanes;
// Rows per register block: 12 sums keep two 4-cycle multipliers busy and leave
// registers for a panel's vectors and a broadcast.
constexpr int kBlockRows = kPanelVectors >= 12 ? 1 : 12 / kPanelVectors;

// Twin of kernels::Exp2().
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  // In this order x86 keeps a NaN in x.
  x = hn::Max(hn::Set(d, kExp2Lowest), x);
  const V shifted = hn::Add(x, hn::Set(d, kExp2Shift));
  const V f = hn::Sub(x, hn::Sub(shifted, hn::Set(d, kExp2Shift)));
  V p = hn::MulAdd(hn::Set(d, kExp2C5), f, hn::Set(d, kExp2C4));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C3));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C2));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C1));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C0));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::Mul(p, power);
}

// 8 halves to 8 floats. Targets without F16C take the plain form.
constexpr bool kHasF16 = HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86;

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
using D8 = hn::CappedTag<float, 8>;
using DU16 = hn::Full128<uint16_t>;
using VU16 = hn::Vec<DU16>;

HWY_INLINE hn::Vec<D8> Promote8(VU16 halves) {
  const hn::Full128<hwy::float16_t> d16;
  return hn::PromoteTo(D8(), hn::BitCast(d16, halves));
}

// Turns 8 rows of 8 halves into 8 columns.
HWY_INLINE void Transpose8(VU16 (&v)[8]) {
  const DU16 d;
  const hn::Full128<uint32_t> d32;
  const hn::Full128<uint64_t> d64;
  const auto low32 = [&](VU16 a, VU16 b) HWY_ATTR {
    return hn::InterleaveLower(d32, hn::BitCast(d32, a), hn::BitCast(d32, b));
  };
  const auto high32 = [&](VU16 a, VU16 b) HWY_ATTR {
    return hn::InterleaveUpper(d32, hn::BitCast(d32, a), hn::BitCast(d32, b));
  };
  const auto low64 = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(
        d, hn::InterleaveLower(d64, hn::BitCast(d64, a), hn::BitCast(d64, b)));
  };
  const auto high64 = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(
        d, hn::InterleaveUpper(d64, hn::BitCast(d64, a), hn::BitCast(d64, b)));
  };
  const VU16 a01 = hn::InterleaveLower(d, v[0], v[1]);
  const VU16 a23 = hn::InterleaveLower(d, v[2], v[3]);
  const VU16 a45 = hn::InterleaveLower(d, v[4], v[5]);
  const VU16 a67 = hn::InterleaveLower(d, v[6], v[7]);
  const VU16 b01 = hn::InterleaveUpper(d, v[0], v[1]);
  const VU16 b23 = hn::InterleaveUpper(d, v[2], v[3]);
  const VU16 b45 = hn::InterleaveUpper(d, v[4], v[5]);
  const VU16 b67 = hn::InterleaveUpper(d, v[6], v[7]);
  v[0] = low64(low32(a01, a23), low32(a45, a67));
  v[1] = high64(low32(a01, a23), low32(a45, a67));
  v[2] = low64(high32(a01, a23), high32(a45, a67));
  v[3] = high64(high32(a01, a23), high32(a45, a67));
  v[4] = low64(low32(b01, b23), low32(b45, b67));
  v[5] = high64(low32(b01, b23), low32(b45, b67));
  v[6] = low64(high32(b01, b23), high32(b45, b67));
  v[7] = high64(high32(b01, b23), high32(b45, b67));
}
#endif

// Converts the keys of panels [first, last) of the tile: rows [kTileTokens] of
// [k_dim] halves to keys [panel, k_dim, kPanel].
inline void ConvertKeys(const uint16_t* const* rows, uint32_t k_dim,
                        uint32_t first, uint32_t last, float* keys) {
  for (uint32_t t = first * kPanel; t < last * kPanel; t += 8) {
    float* to = keys + size_t{t / kPanel} * k_dim * kPanel + t % kPanel;
    uint32_t i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
    for (; i + 8 <= k_dim; i += 8) {
      VU16 v[8];
      for (int j = 0; j < 8; ++j) v[j] = hn::LoadU(DU16(), rows[t + j] + i);
      Transpose8(v);
      for (int j = 0; j < 8; ++j) {
        hn::Store(Promote8(v[j]), D8(), to + (i + j) * kPanel);
      }
    }
#endif
    for (; i < k_dim; ++i) {
      for (int j = 0; j < 8; ++j) to[i * kPanel + j] = F16ToF32(rows[t + j][i]);
    }
  }
}

// Converts tokens [begin, end) of the values: rows [kTileTokens] of [v_dim]
// halves to values [panel, kTileTokens, kPanel], with zeros beyond v_dim.
// Returns whether all of them are finite.
inline bool ConvertValues(const uint16_t* const* rows, uint32_t v_dim,
                          uint32_t begin, uint32_t end, float* values) {
  uint16_t largest = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  const VU16 mask = hn::Set(DU16(), 0x7FFF);
  VU16 most = hn::Zero(DU16());
#endif
  for (uint32_t i = 0; i < v_dim; i += 8) {
    float* to = values + size_t{i / kPanel} * kTileTokens * kPanel + i % kPanel;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
    if (i + 8 <= v_dim) {
      for (uint32_t t = begin; t < end; ++t) {
        const VU16 v = hn::LoadU(DU16(), rows[t] + i);
        most = hn::Max(most, hn::And(v, mask));
        hn::Store(Promote8(v), D8(), to + t * kPanel);
      }
      continue;
    }
#endif
    for (uint32_t t = begin; t < end; ++t) {
      for (uint32_t j = 0; j < 8; ++j) {
        const uint16_t half = i + j < v_dim ? rows[t][i + j] : 0;
        largest = std::max<uint16_t>(largest, half & 0x7FFF);
        to[t * kPanel + j] = F16ToF32(half);
      }
    }
  }
  // The other half of the last panel.
  if (v_dim % kPanel != 0 && v_dim % kPanel <= 8) {
    float* to = values + size_t{v_dim / kPanel} * kTileTokens * kPanel + 8;
    for (uint32_t t = begin; t < end; ++t) std::fill_n(to + t * kPanel, 8, 0.f);
  }
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  largest = std::max(largest, hn::GetLane(hn::MaxOfLanes(DU16(), most)));
#endif
  return largest < 0x7C00;
}

// scores[r][0 .. kPanel) = q[r] * keys, for kRows rows of `k_dim` and of
// kTileTokens. keys [k_dim, kPanel].
template <int kRows>
HWY_INLINE void ScoreBlock(const float* HWY_RESTRICT q, uint32_t k_dim,
                           const float* HWY_RESTRICT keys,
                           float* HWY_RESTRICT scores) {
  const DF d;
  VF sums[kRows][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (uint32_t i = 0; i < k_dim; ++i) {
    VF key[kPanelVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      key[v] = hn::Load(d, keys + i * kPanel + v * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF element = hn::Set(d, q[r * k_dim + i]);
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) {
        sums[r][v] = hn::MulAdd(element, key[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      hn::Store(sums[r][v], d, scores + r * kTileTokens + v * kLanes);
    }
  }
}

// sums[r][0 .. kPanel) = sums * shrink[r] + weights[r] * values over tokens
// [begin, end), for kRows rows of kTileTokens and of `stride`. values
// [kTileTokens, kPanel].
template <int kRows>
HWY_INLINE void ValueBlock(const float* HWY_RESTRICT weights, uint32_t begin,
                           uint32_t end, const float* HWY_RESTRICT values,
                           const float* HWY_RESTRICT shrink,
                           float* HWY_RESTRICT out, uint32_t stride) {
  const DF d;
  VF sums[kRows][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      sums[r][v] = hn::Mul(hn::Load(d, out + r * stride + v * kLanes),
                           hn::Set(d, shrink[r]));
    }
  }
  for (uint32_t t = begin; t < end; ++t) {
    VF value[kPanelVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      value[v] = hn::Load(d, values + t * kPanel + v * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * kTileTokens + t]);
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * stride + v * kLanes);
    }
  }
}

// x = sign(x) cap (1 - e) / (1 + e), e = exp2(-|x|).
inline void CapScores(uint32_t begin, uint32_t end, float cap, float* scores) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  for (uint32_t t = begin; t < end; t += kLanes) {
    const VF x = hn::Load(d, scores + t);
    const VF e = Exp2(d, hn::Neg(hn::Abs(x)));
    const VF tanh = hn::Div(hn::Sub(one, e), hn::Add(one, e));
    const VF capped = hn::Mul(tanh, hn::Set(d, cap));
    hn::Store(hn::CopySign(capped, x), d, scores + t);
  }
}

// One online-softmax step of one row over tokens [begin, end) of a tile: scores
// become weights (0 up to whole panels), max and lanes are updated. Returns
// what earlier sums shrink by.
HWY_INLINE float SoftmaxRow(uint32_t begin, uint32_t end, float cap,
                            float* HWY_RESTRICT scores, float& max,
                            float* HWY_RESTRICT lanes) {
  const DF d;
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  const uint32_t first = begin / kPanel * kPanel;
  const uint32_t last = (end + kPanel - 1) / kPanel * kPanel;
  if (cap != 0.0f) CapScores(first, last, cap, scores);
  for (uint32_t t = first; t < begin; ++t) scores[t] = kMinusInfinity;
  for (uint32_t t = end; t < last; ++t) scores[t] = kMinusInfinity;
  VF largest = hn::Set(d, max);
  for (uint32_t t = first; t < last; t += kLanes) {
    largest = hn::Max(largest, hn::Load(d, scores + t));
  }
  largest = hn::MaxOfLanes(d, largest);
  const VF shrink = Exp2(d, hn::Sub(hn::Set(d, max), largest));
  max = hn::GetLane(largest);
  VF sums[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) {
    sums[v] = hn::Mul(hn::Load(d, lanes + v * kLanes), shrink);
  }
  for (uint32_t t = first; t < last; t += kPanel) {
    for (int v = 0; v < kPanelVectors; ++v) {
      float* at = scores + t + v * kLanes;
      const VF p = Exp2(d, hn::Sub(hn::Load(d, at), largest));
      sums[v] = hn::Add(sums[v], p);
      hn::Store(p, d, at);
    }
  }
  for (int v = 0; v < kPanelVectors; ++v) {
    hn::Store(sums[v], d, lanes + v * kLanes);
  }
  return hn::GetLane(shrink);
}

// Adds by halves.
HWY_INLINE float SumLanes(const float* lanes) {
  float sums[kSumLanes];
  std::copy_n(lanes, kSumLanes, sums);
  for (uint32_t half = kSumLanes / 2; half != 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// Adding 0 leaves everything but a negative zero as it is.
HWY_INLINE void SettleZeros(float* values, size_t count) {
  const DF d;
  for (size_t i = 0; i < count; i += kLanes) {
    hn::Store(hn::Add(hn::Load(d, values + i), hn::Zero(d)), d, values + i);
  }
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_TILE_INL_H_
