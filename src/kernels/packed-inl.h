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

#include "hwy/highway.h"
#include "kernels/codec.h"
#include "kernels/half-inl.h"
#include "kernels/index-inl.h"
#include "kernels/numerics.h"
#include "kernels/partition.h"
#include "kernels/tile-inl.h"

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
// A panel or a part of it.
using DI = hn::RebindToSigned<DF>;
HWY_INLINE VF IndexToFloat(const uint8_t* bytes) {
  const hn::Rebind<uint8_t, DI> d8;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(d8, bytes)));
}

// `count` halves, a multiple of 8, as floats.
HWY_INLINE void HalvesToFloats(const uint16_t* halves, size_t count,
                               float* floats) {
  for (size_t i = 0; i < count; i += 8) {
    hn::Store(Promote8(hn::Load(DU8(), halves + i)), D8(), floats + i);
  }
}

// Scales and biases of group `group` for the 16 tokens of a panel.
struct TokenParams {
  alignas(64) float scale[kPanel];
  alignas(64) float bias[kPanel];
};
HWY_INLINE void LoadTokenParams(const PackedPlane& plane, size_t panel,
                                size_t group, TokenParams& floats) {
  alignas(32) uint16_t scales[kPanel];
  alignas(32) uint16_t biases[kPanel];
  for (size_t t = 0; t < kPanel; ++t) {
    const uint16_t* params = plane.Params(panel, t) + 2 * group;
    scales[t] = params[0];
    biases[t] = params[1];
  }
  HalvesToFloats(scales, kPanel, floats.scale);
  HalvesToFloats(biases, kPanel, floats.bias);
}

// The most dimensions that are turned at once; a multiple of every vector.
constexpr uint32_t kTurned = 64;

// Numbers of one dimension of a panel from their indices.
HWY_INLINE void StoreKeys(const uint8_t* bytes, const TokenParams& params,
                          float* HWY_RESTRICT to) {
  const DF d;
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) {
    const int at = v * kLanes;
    const VF key =
        hn::MulAdd(hn::Load(d, params.scale + at), IndexToFloat(bytes + at),
                   hn::Load(d, params.bias + at));
    hn::Store(key, d, to + at);
  }
}

// Dimensions [at, at + Lanes(d)) of a panel, which belong to one group; `rows`
// begin at dimension `base`.
template <class D>
HWY_INLINE void DecodeTurned(D d, const uint8_t* const (&rows)[kPanel],
                             uint32_t base, uint32_t at,
                             const TokenParams& params, float* HWY_RESTRICT to,
                             PrefetchStream& stream) {
  alignas(64) uint8_t turned[kTurned * kPanel];
  TurnBytes(d, rows, at - base, turned);
  for (uint32_t i = 0; i < hn::Lanes(d); ++i) {
    if (i % 4 == 0) stream.Next();
    StoreKeys(turned + i % 16 * hn::Lanes(d) + i / 16 * 16, params,
              to + (at + i) * kPanel);
  }
}

// Dimensions [0, whole) of the keys of one panel, to [dim, kPanel]; `whole` is
// dim rounded down to a multiple of 16.
template <int kBits>
HWY_INLINE void DecodeKeyPanel(const PackedPlane& plane, size_t panel,
                               uint32_t whole, float* HWY_RESTRICT to,
                               PrefetchStream& stream) {
  const hn::CappedTag<uint8_t, kTurned> wide;
  const hn::CappedTag<uint8_t, 16> narrow;
  alignas(64) uint8_t buffer[kPanel][kTurned];
  TokenParams params;
  for (uint32_t base = 0; base < whole; base += kTurned) {
    const uint32_t end = std::min(base + kTurned, whole);
    const uint8_t* rows[kPanel];
    for (size_t t = 0; t < kPanel; ++t) {
      rows[t] = IndexBytes<kBits>(plane.Indices(panel, t) + base / 8 * kBits,
                                  end - base, buffer[t]);
    }
    for (uint32_t at = base; at < end;) {
      const uint32_t group_end =
          std::min(end, (at / plane.codec.group + 1) * plane.codec.group);
      if (at % plane.codec.group == 0) {
        LoadTokenParams(plane, panel, at / plane.codec.group, params);
      }
      for (; at + hn::Lanes(wide) <= group_end; at += hn::Lanes(wide)) {
        DecodeTurned(wide, rows, base, at, params, to, stream);
      }
      for (; at < group_end; at += 16) {
        DecodeTurned(narrow, rows, base, at, params, to, stream);
      }
    }
  }
}

HWY_INLINE VF BroadcastHalf(uint16_t half) {
  const hn::CappedTag<hwy::float16_t, 8> d16;
  const V8 floats = hn::PromoteTo(D8(), hn::BitCast(d16, hn::Set(DU8(), half)));
  return hn::Set(DF(), hn::GetLane(floats));
}

// What numbers of a normal codec are looked up in: a register where the whole
// table fits in one, else memory.
constexpr bool TableFits(uint32_t bits) { return (1 << bits) <= kLanes; }
template <bool kFits>
struct CentroidTable {
  explicit CentroidTable(uint32_t bits) : centroids(Centroids(bits)) {
    alignas(64) float padded[kLanes] = {};
    if (kFits) std::copy_n(centroids, 1 << bits, padded);
    table = hn::Load(DF(), padded);
  }
  HWY_INLINE VF Look(const uint8_t* bytes) const {
    const hn::Rebind<uint8_t, DI> d8;
    const auto lanes = hn::PromoteTo(DI(), hn::LoadU(d8, bytes));
    if constexpr (kFits) {
      return hn::TableLookupLanes(table, hn::IndicesFromVec(DF(), lanes));
    } else {
      return hn::GatherIndex(DF(), centroids, lanes);
    }
  }
  const float* centroids;
  VF table;
};

// Dimensions [0, whole) of tokens [begin, end); `whole` is dim rounded down to
// a multiple of kPanel.
template <Coding kCoding, int kBits>
HWY_INLINE void DecodeValuePanels(const PackedPlane& plane, uint32_t whole,
                                  uint32_t begin, uint32_t end,
                                  float* HWY_RESTRICT values,
                                  PrefetchStream& stream) {
  alignas(64) uint8_t buffer[kTurned];
  const DF d;
  const CentroidTable<TableFits(kBits)> table(kBits);
  for (uint32_t t = begin; t < end; ++t) {
    const uint16_t* params = plane.Params(t / kPanel, t % kPanel);
    const uint8_t* token = plane.Indices(t / kPanel, t % kPanel);
    VF scale = hn::Zero(d);
    VF bias = hn::Zero(d);
    uint32_t next_group = 0;
    float* to = values + size_t{t} * kPanel;
    stream.Next();
    for (uint32_t at = 0; at < whole; at += kTurned) {
      const uint32_t dims = std::min(kTurned, whole - at);
      const uint8_t* bytes =
          IndexBytes<kBits>(token + at / 8 * kBits, dims, buffer);
      for (uint32_t i = 0; i < dims; i += kPanel, to += kTileTokens * kPanel) {
        if (at + i == next_group) {
          scale = BroadcastHalf(*params++);
          if constexpr (kCoding == Coding::kAffine) {
            bias = BroadcastHalf(*params++);
          }
          next_group += plane.codec.group;
        }
#pragma GCC unroll 4
        for (int v = 0; v < kPanelVectors; ++v) {
          const uint8_t* from = bytes + i + v * kLanes;
          const VF numbers = kCoding == Coding::kAffine
                                 ? hn::MulAdd(scale, IndexToFloat(from), bias)
                                 : hn::Mul(scale, table.Look(from));
          hn::Store(numbers, d, to + v * kLanes);
        }
      }
    }
  }
}

// Calls decode.template operator()<bits>().
template <class Decode>
HWY_INLINE void ForBits(uint32_t bits, Decode decode) {
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

// Dimensions that whole vectors cover. Groups of other widths than the product
// uses go one by one.
HWY_INLINE uint32_t VectorDims(const PackedPlane& plane) {
  return plane.codec.group % kPanel == 0 ? plane.dim / kPanel * kPanel : 0;
}
#endif  // EVERWARM_HAS_F16

// Like ConvertKeys(). Keys are affine. `stream` is asked as work goes on:
// a line for 4 dimensions of a panel, which is the plane of values where it is
// as wide as that of keys.
HWY_NOINLINE void DecodeKeys(const PackedPlane& plane, uint32_t first,
                             uint32_t last, float* HWY_RESTRICT keys,
                             PrefetchStream& stream) {
  for (size_t p = first; p < last; ++p) {
    float* to = keys + p * plane.dim * kPanel;
    uint32_t i = 0;
#if EVERWARM_HAS_F16
    i = VectorDims(plane);
    ForBits(plane.codec.bits, [&]<int kBits>() HWY_ATTR {
      DecodeKeyPanel<kBits>(plane, p, i, to, stream);
    });
#endif
    for (; i < plane.dim; ++i) {
      for (size_t t = 0; t < kPanel; ++t) {
        to[i * kPanel + t] = plane.Number(p, t, i);
      }
    }
  }
  stream.Rest();
}

// Like ConvertValues(). `stream` is asked once a token.
HWY_NOINLINE bool DecodeValues(const PackedPlane& plane, uint32_t begin,
                               uint32_t end, float* HWY_RESTRICT values,
                               PrefetchStream& stream) {
  uint32_t i = 0;
#if EVERWARM_HAS_F16
  i = VectorDims(plane);
  ForBits(plane.codec.bits, [&]<int kBits>() HWY_ATTR {
    if (plane.codec.coding == Coding::kAffine) {
      DecodeValuePanels<Coding::kAffine, kBits>(plane, i, begin, end, values,
                                                stream);
    } else {
      DecodeValuePanels<Coding::kNormal, kBits>(plane, i, begin, end, values,
                                                stream);
    }
  });
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
  stream.Rest();
  return largest < 0x7C00;
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_PACKED_INL_H_
