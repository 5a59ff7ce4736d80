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

constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kLineHalves = kLineBytes / sizeof(uint16_t);
// A panel's tokens lie in one block, one after the other.
constexpr uint32_t kTilePanels = kTileTokens / kPanel;

// Where the panels of a tile lie for one KV head; null where nobody looks.
// Coded numbers are bytes, on an even address.
struct TileRows {
  const uint16_t* keys[kTilePanels];
  const uint16_t* values[kTilePanels];
  // Of codecs that have them.
  const uint16_t* key_params[kTilePanels];
  const uint16_t* value_params[kTilePanels];
};

// Values in halves, token by token.
struct HalfRows {
  const uint16_t* const* panels;
  size_t stride;  // halves from one token of a panel to the next
  HWY_INLINE const uint16_t* Token(size_t t) const {
    return panels[t / kPanel] + t % kPanel * stride;
  }
};

// Asks for the panels of one plane line by line, as work goes on.
class PrefetchStream {
 public:
  // Nothing to ask for.
  PrefetchStream() = default;
  // `token_bytes`: of one token in the plane.
  PrefetchStream(const uint16_t* const* panels, size_t token_bytes)
      : panels_(panels),
        end_(panels + kTilePanels),
        panel_halves_(token_bytes * kPanel / sizeof(uint16_t)) {
    Open();
  }
  HWY_INLINE void Next() {
    if (at_ == nullptr) return;
    hwy::Prefetch(at_);
    at_ += kLineHalves;
    if (at_ >= stop_) Open();
  }
  void Next(uint32_t lines) {
    for (; lines != 0 && at_ != nullptr; --lines) Next();
  }
  void Rest() {
    while (at_ != nullptr) Next();
  }

 private:
  void Open() {
    at_ = nullptr;
    while (panels_ != end_ && at_ == nullptr) at_ = *panels_++;
    stop_ = at_ + (at_ == nullptr ? 0 : panel_halves_);
  }

  const uint16_t* const* panels_ = nullptr;
  const uint16_t* const* end_ = nullptr;
  size_t panel_halves_ = 0;
  const uint16_t* at_ = nullptr;
  const uint16_t* stop_ = nullptr;
};

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

// Calls use(j, halves) for dimensions j = 0 .. 7 from `i`, each with the 16
// tokens of a panel.
template <class Use>
HWY_INLINE void ForKeys8(const uint16_t* panel, size_t k_dim, size_t i,
                         Use use) {
  const DU16 d;
  const DU8 d8;
  VU16 v[8];
#pragma GCC unroll 8
  for (size_t j = 0; j < 8; ++j) {
    v[j] = hn::Combine(d, hn::LoadU(d8, panel + (j + 8) * k_dim + i),
                       hn::LoadU(d8, panel + j * k_dim + i));
  }
  Transpose8(d, v);
#pragma GCC unroll 8
  for (size_t j = 0; j < 8; ++j) use(j, v[j]);
}
#endif  // EVERWARM_HAS_F16

// Converts the keys of panels [first, last) of the tile to keys
// [panel, k_dim, kPanel].
HWY_NOINLINE void ConvertKeys(const uint16_t* const* panels, size_t k_dim,
                              uint32_t first, uint32_t last,
                              float* HWY_RESTRICT keys) {
  for (size_t p = first; p < last; ++p) {
    const uint16_t* panel = panels[p];
    float* to = keys + p * k_dim * kPanel;
    size_t i = 0;
#if EVERWARM_HAS_F16
    for (; i + 8 <= k_dim; i += 8) {
      ForKeys8(panel, k_dim, i, [&](size_t j, VU16 v) HWY_ATTR {
        float* at = to + (i + j) * kPanel;
        hn::Store(Promote8(hn::LowerHalf(DU8(), v)), D8(), at);
        hn::Store(Promote8(hn::UpperHalf(DU8(), v)), D8(), at + 8);
      });
    }
#endif
    for (; i < k_dim; ++i) {
      for (size_t j = 0; j < kPanel; ++j) {
        to[i * kPanel + j] = F16ToF32(panel[j * k_dim + i]);
      }
    }
  }
}

// Dimensions [i, i + kPanel) of tokens [begin, end), in plain C++.
inline uint16_t ConvertPanel(const HalfRows& rows, uint32_t v_dim, uint32_t i,
                             uint32_t begin, uint32_t end, float* to) {
  uint16_t largest = 0;
  for (uint32_t t = begin; t < end; ++t) {
    const uint16_t* row = rows.Token(t);
    for (uint32_t j = 0; j < kPanel; ++j) {
      const uint16_t half = i + j < v_dim ? row[i + j] : 0;
      largest = std::max<uint16_t>(largest, half & 0x7FFF);
      to[t * kPanel + j] = F16ToF32(half);
    }
  }
  return largest;
}

// Converts tokens [begin, end) of the tile's values to values
// [v_dim / kPanel, kTileTokens, kPanel], with zeros beyond v_dim. Returns
// whether all of them are finite.
HWY_NOINLINE bool ConvertValues(const HalfRows& rows, uint32_t v_dim,
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
      const uint16_t* row = rows.Token(t);
      const VU8 low = hn::LoadU(d, row + i);
      const VU8 high = hn::LoadU(d, row + i + 8);
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
