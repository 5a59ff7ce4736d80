// SIMD pieces of one tile of floats: dot products, weights, value sums.
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
#include <limits>

#include "hwy/highway.h"
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
// Panels per register block. Where 32 registers hold a panel each, two of them
// share each broadcast: 14 loads for 24 products instead of 13 for 12.
constexpr int kBlockPanels =
    kPanelVectors == 1 && HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 ? 2 : 1;
// The same for up to kFewRows rows, whose sums are too few for the latency of a
// product.
constexpr int kFewRows = kBlockRows / 2 > 0 ? kBlockRows / 2 : 1;
constexpr int kFewRowsPanels = 2 * kBlockPanels;

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

// scores[r][0 .. kPanels * kPanel) = q[r] * keys, for kRows rows of `k_dim` and
// of kTileTokens. keys [kPanels, k_dim, kPanel].
template <int kRows, int kPanels>
HWY_INLINE void ScoreBlock(const float* HWY_RESTRICT q, size_t k_dim,
                           const float* HWY_RESTRICT keys,
                           float* HWY_RESTRICT scores) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const DF d;
  VF sums[kRows][kVectors];
  const float* rows[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    rows[r] = q + r * k_dim;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (size_t i = 0; i < k_dim; ++i, keys += kPanel) {
    VF key[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      key[v] = hn::Load(d, keys + v / kPanelVectors * k_dim * kPanel +
                               v % kPanelVectors * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF element = hn::Set(d, rows[r][i]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(element, key[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, scores + r * kTileTokens + v * kLanes);
    }
  }
}

// sums[r][0 .. kPanels * kPanel) = sums * shrink[r] + weights[r] * values over
// `tokens`, for kRows rows of kTileTokens and of `stride`. A panel of values is
// [kTileTokens, kPanel], of which the first `tokens` count.
template <int kRows, int kPanels>
HWY_INLINE void ValueBlock(const float* HWY_RESTRICT weights, size_t tokens,
                           const float* HWY_RESTRICT values,
                           const float* HWY_RESTRICT shrink,
                           float* HWY_RESTRICT out, size_t stride) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const DF d;
  VF sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Mul(hn::Load(d, out + r * stride + v * kLanes),
                           hn::Set(d, shrink[r]));
    }
  }
  const float* end = weights + tokens;
  for (; weights != end; ++weights, values += kPanel) {
    VF value[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      value[v] = hn::Load(d, values + v / kPanelVectors * kTileTokens * kPanel +
                                 v % kPanelVectors * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * kTileTokens]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * stride + v * kLanes);
    }
  }
}

// x = sign(x) cap (1 - e) / (1 + e), e = exp2(-|x|).
HWY_NOINLINE void CapScores(uint32_t begin, uint32_t end, float cap,
                            float* scores) {
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
