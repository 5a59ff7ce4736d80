// From coded numbers in blocks (kernels/codec.h) to a tile of floats, with the
// bits of DecodeHead().
#if defined(EVERWARM_KERNELS_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_PACKED_INL_H_
#undef EVERWARM_KERNELS_PACKED_INL_H_
#else
#define EVERWARM_KERNELS_PACKED_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/codec.h"
#include "kernels/half-inl.h"
#include "kernels/numerics.h"
#include "kernels/partition.h"

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

// One plane of one KV head in a tile, and its parameters.
struct PackedPlane {
  const PlaneCodec& codec;
  const uint16_t* const* indices;  // per panel
  const uint16_t* const* params;   // per panel
  uint32_t dim;
  size_t index_bytes;   // of a token
  size_t param_halves;  // of a token

  const uint8_t* Indices(size_t panel, size_t token) const {
    return reinterpret_cast<const uint8_t*>(indices[panel]) +
           token * index_bytes;
  }
  const uint16_t* Params(size_t panel, size_t token) const {
    return params[panel] + token * param_halves;
  }
  float Number(size_t panel, size_t token, uint32_t i) const {
    return DecodeNumber(
        codec, reinterpret_cast<const std::byte*>(Indices(panel, token)),
        Params(panel, token), i);
  }
};

#if EVERWARM_HAS_F16
// Index j of 8 lies in the 16 bits from byte j * bits / 8 on, j * bits % 8 bits
// up. A product moves all of them 7 bits up.
template <int kBits>
struct IndexWindows {
  alignas(16) uint8_t bytes[16];
  alignas(16) uint16_t factors[8];
};
template <int kBits>
constexpr IndexWindows<kBits> MakeIndexWindows() {
  IndexWindows<kBits> windows = {};
  for (int j = 0; j < 8; ++j) {
    windows.bytes[2 * j] = static_cast<uint8_t>(j * kBits / 8);
    windows.bytes[2 * j + 1] = static_cast<uint8_t>(j * kBits / 8 + 1);
    windows.factors[j] = static_cast<uint16_t>(1u << (7 - j * kBits % 8));
  }
  return windows;
}

// 8 indices from a whole byte on. Reads 8 bytes: behind the numbers of a plane
// there is always one of parameters.
template <int kBits>
HWY_INLINE VU8 Indices8(const uint8_t* from) {
  const DU8 d;
  if constexpr (kBits == 8) {
    return hn::PromoteTo(d, hn::LoadU(hn::CappedTag<uint8_t, 8>(), from));
  } else {
    static constexpr IndexWindows<kBits> kWindows = MakeIndexWindows<kBits>();
    const hn::CappedTag<uint8_t, 16> d8;
    const hn::CappedTag<uint64_t, 2> d64;
    uint64_t bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    const auto windows = hn::BitCast(
        d, hn::TableLookupBytes(hn::BitCast(d8, hn::Set(d64, bytes)),
                                hn::Load(d8, kWindows.bytes)));
    const VU8 moved = hn::Mul(windows, hn::Load(d, kWindows.factors));
    return hn::And(hn::ShiftRight<7>(moved),
                   hn::Set(d, static_cast<uint16_t>((1 << kBits) - 1)));
  }
}

using DI8 = hn::CappedTag<int32_t, 8>;

HWY_INLINE V8 IndexToFloat(VU8 indices) {
  return hn::ConvertTo(D8(), hn::PromoteTo(DI8(), indices));
}

HWY_INLINE V8 BroadcastHalf(uint16_t half) {
  return Promote8(hn::Set(DU8(), half));
}

// Scales and biases of group `group` for the 16 tokens of a panel.
struct TokenParams {
  V8 scale[2];
  V8 bias[2];
};
HWY_INLINE TokenParams LoadTokenParams(const PackedPlane& plane, size_t panel,
                                       size_t group) {
  alignas(32) uint16_t scales[kPanel];
  alignas(32) uint16_t biases[kPanel];
  for (size_t t = 0; t < kPanel; ++t) {
    const uint16_t* params = plane.Params(panel, t) + 2 * group;
    scales[t] = params[0];
    biases[t] = params[1];
  }
  const DU8 d;
  return {{Promote8(hn::Load(d, scales)), Promote8(hn::Load(d, scales + 8))},
          {Promote8(hn::Load(d, biases)), Promote8(hn::Load(d, biases + 8))}};
}

// Dimensions [0, k_dim / 8 * 8) of the keys of one panel, to [k_dim, kPanel].
template <int kBits>
void DecodeKeyPanel(const PackedPlane& plane, size_t panel,
                    float* HWY_RESTRICT to) {
  const D8 d;
  const DU16 d16;
  TokenParams params = {};
  for (size_t i = 0; i + 8 <= plane.dim; i += 8) {
    if (i % plane.codec.group == 0) {
      params = LoadTokenParams(plane, panel, i / plane.codec.group);
    }
    const size_t at = i / 8 * kBits;
    VU16 v[8];
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
      v[j] = hn::Combine(d16, Indices8<kBits>(plane.Indices(panel, j + 8) + at),
                         Indices8<kBits>(plane.Indices(panel, j) + at));
    }
    Transpose8(d16, v);
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
      float* column = to + (i + j) * kPanel;
      const V8 low = IndexToFloat(hn::LowerHalf(DU8(), v[j]));
      const V8 high = IndexToFloat(hn::UpperHalf(DU8(), v[j]));
      hn::Store(hn::MulAdd(params.scale[0], low, params.bias[0]), d, column);
      hn::Store(hn::MulAdd(params.scale[1], high, params.bias[1]), d,
                column + 8);
    }
  }
}

// 8 numbers of one token from dimension `i` on.
template <Coding kCoding, int kBits>
HWY_INLINE V8 DecodeValues8(const PackedPlane& plane, const uint8_t* indices,
                            const uint16_t* params, size_t i) {
  const D8 d;
  const VU8 index = Indices8<kBits>(indices + i / 8 * kBits);
  const size_t group = i / plane.codec.group;
  if constexpr (kCoding == Coding::kAffine) {
    return hn::MulAdd(BroadcastHalf(params[2 * group]), IndexToFloat(index),
                      BroadcastHalf(params[2 * group + 1]));
  } else {
    const auto lanes = hn::PromoteTo(DI8(), index);
    const float* centroids = Centroids(kBits);
    const V8 scale = BroadcastHalf(params[group]);
    if constexpr (kBits == 3) {
      return hn::Mul(scale, hn::TableLookupLanes(hn::LoadU(d, centroids),
                                                 hn::IndicesFromVec(d, lanes)));
    } else {
      return hn::Mul(scale, hn::GatherIndex(d, centroids, lanes));
    }
  }
}

// Dimensions [0, v_dim / kPanel * kPanel) of tokens [begin, end).
template <Coding kCoding, int kBits>
void DecodeValuePanels(const PackedPlane& plane, uint32_t begin, uint32_t end,
                       float* HWY_RESTRICT values) {
  const D8 d;
  for (uint32_t t = begin; t < end; ++t) {
    const uint8_t* indices = plane.Indices(t / kPanel, t % kPanel);
    const uint16_t* params = plane.Params(t / kPanel, t % kPanel);
    float* to = values + size_t{t} * kPanel;
    for (size_t i = 0; i + kPanel <= plane.dim; i += kPanel) {
      hn::Store(DecodeValues8<kCoding, kBits>(plane, indices, params, i), d,
                to + i * kTileTokens);
      hn::Store(DecodeValues8<kCoding, kBits>(plane, indices, params, i + 8), d,
                to + i * kTileTokens + 8);
    }
  }
}

// Calls decode.template operator()<bits>().
template <class Decode>
void ForBits(uint32_t bits, Decode decode) {
  switch (bits) {
    case 2:
      return decode.template operator()<2>();
    case 3:
      return decode.template operator()<3>();
    case 4:
      return decode.template operator()<4>();
    case 5:
      return decode.template operator()<5>();
    default:
      return decode.template operator()<8>();
  }
}
#endif  // EVERWARM_HAS_F16

// Like ConvertKeys(). Keys are not rotated.
HWY_NOINLINE void DecodeKeys(const PackedPlane& plane, uint32_t first,
                             uint32_t last, float* HWY_RESTRICT keys) {
  for (size_t p = first; p < last; ++p) {
    float* to = keys + p * plane.dim * kPanel;
    uint32_t i = 0;
#if EVERWARM_HAS_F16
    ForBits(plane.codec.bits,
            [&]<int kBits>() { DecodeKeyPanel<kBits>(plane, p, to); });
    i = plane.dim / 8 * 8;
#endif
    for (; i < plane.dim; ++i) {
      for (size_t t = 0; t < kPanel; ++t) {
        to[i * kPanel + t] = plane.Number(p, t, i);
      }
    }
  }
}

// Like ConvertValues().
HWY_NOINLINE bool DecodeValues(const PackedPlane& plane, uint32_t begin,
                               uint32_t end, float* HWY_RESTRICT values) {
  uint32_t i = 0;
#if EVERWARM_HAS_F16
  ForBits(plane.codec.bits, [&]<int kBits>() {
    if (plane.codec.coding == Coding::kAffine) {
      DecodeValuePanels<Coding::kAffine, kBits>(plane, begin, end, values);
    } else {
      DecodeValuePanels<Coding::kRotated, kBits>(plane, begin, end, values);
    }
  });
  i = plane.dim / kPanel * kPanel;
#endif
  uint16_t largest = 0;
  for (uint32_t t = begin; t < end; ++t) {
    const uint16_t* params = plane.Params(t / kPanel, t % kPanel);
    for (size_t j = 0; j < plane.param_halves; ++j) {
      largest = std::max<uint16_t>(largest, params[j] & 0x7FFF);
    }
    for (uint32_t rest = i; rest < ValueStride(plane.dim); ++rest) {
      values[size_t{rest / kPanel} * kTileTokens * kPanel + t * kPanel +
             rest % kPanel] =
          rest < plane.dim ? plane.Number(t / kPanel, t % kPanel, rest) : 0.0f;
    }
  }
  return largest < 0x7C00;
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_PACKED_INL_H_
