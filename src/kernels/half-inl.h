// From halves in blocks to floats: in registers, and for a whole tile.
#if defined(EVERWARM_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_HALF_INL_H_
#undef EVERWARM_KERNELS_HALF_INL_H_
#else
#define EVERWARM_KERNELS_HALF_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/f16.h"
#include "kernels/numerics.h"
#include "kernels/partition.h"

// Whether the target converts halves itself. Where it does not, plain C++ does.
#undef EVERWARM_HAS_F16
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
#define EVERWARM_HAS_F16 1
#else
#define EVERWARM_HAS_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

// Where the tokens of a tile lie for one KV head.
struct TileRows {
  const uint16_t* keys[kTileTokens];
  const uint16_t* values[kTileTokens];
};

HWY_INLINE void PrefetchRow(const uint16_t* row, uint32_t dim) {
  constexpr uint32_t kLineHalves = 32;
  for (uint32_t i = 0; i < dim; i += kLineHalves) hwy::Prefetch(row + i);
}

#if EVERWARM_HAS_F16
namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::CappedTag<float, 8>;
using V8 = hn::Vec<D8>;

// 8 halves.
using DU8 = hn::CappedTag<uint16_t, 8>;
using VU8 = hn::Vec<DU8>;
// 16 halves in two 128-bit blocks.
using DU16 = hn::CappedTag<uint16_t, 16>;
using VU16 = hn::Vec<DU16>;

HWY_INLINE V8 Promote8(VU8 halves) {
  const hn::CappedTag<hwy::float16_t, 8> d16;
  return hn::PromoteTo(D8(), hn::BitCast(d16, halves));
}

// In each 128-bit block, turns 8 rows of 8 halves into 8 columns.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void Transpose8(D d, V (&v)[8]) {
  const hn::RepartitionToWide<D> d32;
  const hn::RepartitionToWide<decltype(d32)> d64;
  const auto a01 = hn::BitCast(d32, hn::InterleaveLower(d, v[0], v[1]));
  const auto a23 = hn::BitCast(d32, hn::InterleaveLower(d, v[2], v[3]));
  const auto a45 = hn::BitCast(d32, hn::InterleaveLower(d, v[4], v[5]));
  const auto a67 = hn::BitCast(d32, hn::InterleaveLower(d, v[6], v[7]));
  const auto b01 = hn::BitCast(d32, hn::InterleaveUpper(d, v[0], v[1]));
  const auto b23 = hn::BitCast(d32, hn::InterleaveUpper(d, v[2], v[3]));
  const auto b45 = hn::BitCast(d32, hn::InterleaveUpper(d, v[4], v[5]));
  const auto b67 = hn::BitCast(d32, hn::InterleaveUpper(d, v[6], v[7]));
  const auto c0 = hn::BitCast(d64, hn::InterleaveLower(d32, a01, a23));
  const auto c1 = hn::BitCast(d64, hn::InterleaveUpper(d32, a01, a23));
  const auto c2 = hn::BitCast(d64, hn::InterleaveLower(d32, b01, b23));
  const auto c3 = hn::BitCast(d64, hn::InterleaveUpper(d32, b01, b23));
  const auto e0 = hn::BitCast(d64, hn::InterleaveLower(d32, a45, a67));
  const auto e1 = hn::BitCast(d64, hn::InterleaveUpper(d32, a45, a67));
  const auto e2 = hn::BitCast(d64, hn::InterleaveLower(d32, b45, b67));
  const auto e3 = hn::BitCast(d64, hn::InterleaveUpper(d32, b45, b67));
  v[0] = hn::BitCast(d, hn::InterleaveLower(d64, c0, e0));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, c0, e0));
  v[2] = hn::BitCast(d, hn::InterleaveLower(d64, c1, e1));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, c1, e1));
  v[4] = hn::BitCast(d, hn::InterleaveLower(d64, c2, e2));
  v[5] = hn::BitCast(d, hn::InterleaveUpper(d64, c2, e2));
  v[6] = hn::BitCast(d, hn::InterleaveLower(d64, c3, e3));
  v[7] = hn::BitCast(d, hn::InterleaveUpper(d64, c3, e3));
}

// Calls use(j, keys) for dimensions j = 0 .. 15 from `i` of 8 tokens, in order.
template <class Use>
HWY_INLINE void ForKeys16(const uint16_t* const* rows, size_t i, Use use) {
  const DU16 d;
  VU16 v[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) v[j] = hn::LoadU(d, rows[j] + i);
  Transpose8(d, v);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) use(j, Promote8(hn::LowerHalf(DU8(), v[j])));
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) use(j + 8, Promote8(hn::UpperHalf(DU8(), v[j])));
}

// The same for 8 dimensions.
template <class Use>
HWY_INLINE void ForKeys8(const uint16_t* const* rows, size_t i, Use use) {
  const DU8 d;
  VU8 v[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) v[j] = hn::LoadU(d, rows[j] + i);
  Transpose8(d, v);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) use(j, Promote8(v[j]));
}
#endif  // EVERWARM_HAS_F16

// Converts the keys of panels [first, last) of the tile: rows [kTileTokens] of
// [k_dim] halves to keys [panel, k_dim, kPanel].
HWY_NOINLINE void ConvertKeys(const uint16_t* const* rows, size_t k_dim,
                              uint32_t first, uint32_t last,
                              float* HWY_RESTRICT keys) {
  for (uint32_t t = first * kPanel; t < last * kPanel; t += 8) {
    float* to = keys + t / kPanel * k_dim * kPanel + t % kPanel;
    size_t i = 0;
#if EVERWARM_HAS_F16
    const auto store = [&](size_t j, V8 key) HWY_ATTR {
      hn::Store(key, D8(), to + (i + j) * kPanel);
    };
    for (; i + 16 <= k_dim; i += 16) ForKeys16(rows + t, i, store);
    for (; i + 8 <= k_dim; i += 8) ForKeys8(rows + t, i, store);
#endif
    for (; i < k_dim; ++i) {
      for (int j = 0; j < 8; ++j) to[i * kPanel + j] = F16ToF32(rows[t + j][i]);
    }
  }
}

// Dimensions [i, i + kPanel) of tokens [begin, end), in plain C++.
inline uint16_t ConvertPanel(const uint16_t* const* rows, uint32_t v_dim,
                             uint32_t i, uint32_t begin, uint32_t end,
                             float* to) {
  uint16_t largest = 0;
  for (uint32_t t = begin; t < end; ++t) {
    for (uint32_t j = 0; j < kPanel; ++j) {
      const uint16_t half = i + j < v_dim ? rows[t][i + j] : 0;
      largest = std::max<uint16_t>(largest, half & 0x7FFF);
      to[t * kPanel + j] = F16ToF32(half);
    }
  }
  return largest;
}

// Converts tokens [begin, end) of the values: rows [kTileTokens] of [v_dim]
// halves to values [panel, kTileTokens, kPanel], with zeros beyond v_dim.
// Returns whether all of them are finite.
HWY_NOINLINE bool ConvertValues(const uint16_t* const* rows, uint32_t v_dim,
                                uint32_t begin, uint32_t end,
                                float* HWY_RESTRICT values) {
  uint16_t largest = 0;
  uint32_t i = 0;
#if EVERWARM_HAS_F16
  const DU8 d;
  const VU8 mask = hn::Set(d, 0x7FFF);
  VU8 most = hn::Zero(d);
  for (; i + kPanel <= v_dim; i += kPanel) {
    float* to = values + size_t{i} * kTileTokens;
    for (uint32_t t = begin; t < end; ++t) {
      const VU8 low = hn::LoadU(d, rows[t] + i);
      const VU8 high = hn::LoadU(d, rows[t] + i + 8);
      most = hn::Max(most, hn::And(low, mask));
      most = hn::Max(most, hn::And(high, mask));
      hn::Store(Promote8(low), D8(), to + t * kPanel);
      hn::Store(Promote8(high), D8(), to + t * kPanel + 8);
    }
  }
  largest = hn::GetLane(hn::MaxOfLanes(d, most));
#endif
  for (; i < v_dim; i += kPanel) {
    largest = std::max(largest, ConvertPanel(rows, v_dim, i, begin, end,
                                             values + size_t{i} * kTileTokens));
  }
  return largest < 0x7C00;
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_HALF_INL_H_
