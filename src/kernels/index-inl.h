// Indices of coded numbers: from a stream of bits to bytes, and from tokens by
// dimensions to dimensions by tokens.
#if defined(EVERWARM_KERNELS_INDEX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_INDEX_INL_H_
#undef EVERWARM_KERNELS_INDEX_INL_H_
#else
#define EVERWARM_KERNELS_INDEX_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/half-inl.h"
#include "kernels/partition.h"

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

#if EVERWARM_HAS_F16
// Index j of 8 lies in the 16 bits from byte j * bits / 8 on, j * bits % 8 bits
// up. A product moves all of them 7 bits up.
struct IndexWindows {
  alignas(16) uint8_t bytes[16];
  alignas(16) uint16_t factors[8];
};
constexpr IndexWindows MakeIndexWindows(int bits) {
  IndexWindows windows = {};
  for (int j = 0; j < 8; ++j) {
    windows.bytes[2 * j] = static_cast<uint8_t>(j * bits / 8);
    windows.bytes[2 * j + 1] = static_cast<uint8_t>(j * bits / 8 + 1);
    windows.factors[j] = static_cast<uint16_t>(1u << (7 - j * bits % 8));
  }
  return windows;
}

// Spreads 8 indices of less than 8 bits, from a whole byte on, over 8 bytes.
// Reads 8 bytes: behind the numbers of a plane there is always one of
// parameters.
template <int kBits>
HWY_INLINE void Spread8(const uint8_t* from, uint8_t* to) {
  static constexpr IndexWindows kWindows = MakeIndexWindows(kBits);
  const DU8 d;
  const hn::CappedTag<uint8_t, 16> d8;
  const hn::CappedTag<uint64_t, 2> d64;
  uint64_t bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  const auto windows =
      hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(d8, hn::Set(d64, bytes)),
                                          hn::Load(d8, kWindows.bytes)));
  const VU8 moved = hn::Mul(windows, hn::Load(d, kWindows.factors));
  const VU8 indices =
      hn::And(hn::ShiftRight<7>(moved),
              hn::Set(d, static_cast<uint16_t>((1 << kBits) - 1)));
  const hn::Rebind<uint8_t, DU8> half;
  hn::StoreU(
      hn::DemoteTo(half, hn::BitCast(hn::CappedTag<int16_t, 8>(), indices)),
      half, to);
}

// 32 indices of 4 bits.
HWY_INLINE void SpreadNibbles(const uint8_t* from, uint8_t* to) {
  const hn::CappedTag<uint8_t, 16> d;
  const auto mask = hn::Set(d, uint8_t{0x0F});
  const auto bytes = hn::LoadU(d, from);
  const auto low = hn::And(bytes, mask);
  const hn::CappedTag<uint16_t, 8> d16;
  const auto high =
      hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), mask);
  hn::StoreU(hn::InterleaveLower(d, low, high), d, to);
  hn::StoreU(hn::InterleaveUpper(d, low, high), d, to + 16);
}

// Indices of one token as bytes, `dim` of them rounded down to whole eights:
// where they lie, or else in `buffer`.
template <int kBits>
HWY_INLINE const uint8_t* IndexBytes(const uint8_t* indices, uint32_t dim,
                                     uint8_t* buffer) {
  if constexpr (kBits == 8) return indices;
  uint32_t i = 0;
  if constexpr (kBits == 4) {
    for (; i + 32 <= dim; i += 32) SpreadNibbles(indices + i / 2, buffer + i);
  }
  for (; i + 8 <= dim; i += 8) {
    Spread8<kBits>(indices + i / 8 * kBits, buffer + i);
  }
  return buffer;
}

// Turns 16 rows of 16 bytes, in each 128-bit block, into 16 columns.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposeBytes(D d, V (&v)[16]) {
  V w[16];
  // Interleaving row i with row i + 8, four times over, leaves column i.
#pragma GCC unroll 4
  for (int stage = 0; stage < 4; ++stage) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + 8]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) v[i] = w[i];
  }
}

// Turns Lanes(d) dimensions of 16 tokens. Dimension i lies at
// turned[i % 16 * Lanes(d) + i / 16 * 16], 16 bytes of it.
template <class D>
HWY_INLINE void TurnBytes(D d, const uint8_t* const (&rows)[kPanel], size_t at,
                          uint8_t* turned) {
  hn::Vec<D> v[kPanel];
#pragma GCC unroll 16
  for (size_t t = 0; t < kPanel; ++t) v[t] = hn::LoadU(d, rows[t] + at);
  TransposeBytes(d, v);
#pragma GCC unroll 16
  for (size_t i = 0; i < kPanel; ++i) {
    hn::Store(v[i], d, turned + i * hn::Lanes(d));
  }
}
#endif  // EVERWARM_HAS_F16

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_INDEX_INL_H_
