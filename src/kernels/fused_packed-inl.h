// A tile of coded KV for a few query rows, as in decode: no tile of floats is
// stored; indices become numbers in registers, for up to four rows at once. The
// sums are those of tile-inl.h over what packed-inl.h decodes, bit for bit.
#if defined(EVERWARM_KERNELS_FUSED_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_FUSED_PACKED_INL_H_
#undef EVERWARM_KERNELS_FUSED_PACKED_INL_H_
#else
#define EVERWARM_KERNELS_FUSED_PACKED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/codec.h"
#include "kernels/half-inl.h"
#include "kernels/index-inl.h"
#include "kernels/numerics.h"
#include "kernels/packed-inl.h"
#include "kernels/partition.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

#if EVERWARM_HAS_F16

// Vectors per row: four where 32 registers hold their sums, scales and biases,
// else a panel.
constexpr int kPackedVectors = kPanelVectors == 1 ? 4 : kPanelVectors;
constexpr uint32_t kPackedLanes = kPackedVectors * kLanes;

// A plane of a tile as bytes, and its parameters as floats, token by token.
struct ByteTile {
  uint8_t* bytes;  // keys: [dim, kTileTokens]
  float* scales;   // [group, kTileTokens]
  float* biases;   // [group, kTileTokens]; affine codings
};

// Bytes that a ByteTile of `dim` takes: less than floats of its numbers.
HWY_INLINE ByteTile LayOutBytes(float* scratch, uint32_t dim,
                                const PlaneCodec& codec) {
  ByteTile tile;
  tile.scales = scratch;
  tile.biases = tile.scales + codec.NumGroups(dim) * kTileTokens;
  tile.bytes = reinterpret_cast<uint8_t*>(tile.biases +
                                          codec.NumGroups(dim) * kTileTokens);
  return tile;
}

// Parameters of panels [first, last) as floats.
HWY_INLINE void LoadParams(const PackedPlane& plane, uint32_t first,
                           uint32_t last, const ByteTile& tile) {
  const uint32_t groups = plane.codec.NumGroups(plane.dim);
  const uint32_t each = plane.codec.GroupParams();
  alignas(32) uint16_t halves[2][kPanel];
  for (size_t p = first; p < last; ++p) {
    for (uint32_t g = 0; g < groups; ++g) {
      const uint16_t* params = plane.Params(p, 0) + g * each;
      if (each == 2 && groups == 1) {
        for (size_t t = 0; t < kPanel; t += 8) {
          VU8 scales;
          VU8 biases;
          hn::LoadInterleaved2(DU8(), params + 2 * t, scales, biases);
          hn::Store(scales, DU8(), halves[0] + t);
          hn::Store(biases, DU8(), halves[1] + t);
        }
      } else {
        for (size_t t = 0; t < kPanel; ++t, params += plane.param_halves) {
          halves[0][t] = params[0];
          halves[1][t] = params[each - 1];
        }
      }
      const size_t at = g * kTileTokens + p * kPanel;
      HalvesToFloats(halves[0], kPanel, tile.scales + at);
      HalvesToFloats(halves[1], kPanel, tile.biases + at);
    }
  }
}

// Indices of the keys of panels [first, last) as columns of bytes.
// Requires: k_dim is a multiple of 16.
template <int kBits>
HWY_NOINLINE void TurnKeys(const PackedPlane& plane, uint32_t first,
                           uint32_t last, const ByteTile& tile,
                           PrefetchStream& stream) {
  const hn::CappedTag<uint8_t, kTurned> wide;
  const hn::CappedTag<uint8_t, 16> narrow;
  alignas(64) uint8_t buffer[kPanel][kTurned];
  alignas(64) uint8_t turned[kTurned * kPanel];
  for (size_t p = first; p < last; ++p) {
    for (uint32_t base = 0; base < plane.dim; base += kTurned) {
      const uint32_t dims = std::min(kTurned, plane.dim - base);
      const uint8_t* rows[kPanel];
      for (size_t t = 0; t < kPanel; ++t) {
        stream.Next();
        rows[t] = IndexBytes<kBits>(plane.Indices(p, t) + base / 8 * kBits,
                                    dims, buffer[t]);
      }
      uint8_t* to = tile.bytes + base * kTileTokens + p * kPanel;
      const auto turn = [&](auto d, uint32_t at) HWY_ATTR {
        TurnBytes(d, rows, at, turned);
        for (uint32_t i = 0; i < hn::Lanes(d); ++i) {
          const uint8_t* column = turned + i % 16 * hn::Lanes(d) + i / 16 * 16;
          hn::Store(hn::Load(narrow, column), narrow,
                    to + (at + i) * kTileTokens);
        }
      };
      uint32_t at = 0;
      for (; at + hn::Lanes(wide) <= dims; at += hn::Lanes(wide)) {
        turn(wide, at);
      }
      for (; at < dims; at += 16) turn(narrow, at);
    }
  }
}

// scores[r] = q[r] * keys for kVectors vectors of tokens from `token`.
template <int kRows, int kVectors>
HWY_INLINE void ScorePackedColumns(const PackedPlane& plane,
                                   const ByteTile& tile, size_t token,
                                   const float* HWY_RESTRICT q,
                                   float* HWY_RESTRICT scores,
                                   PrefetchStream& stream) {
  const DF d;
  VF sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const uint8_t* HWY_RESTRICT bytes = tile.bytes + token;
  const float* scales = tile.scales + token;
  const float* biases = tile.biases + token;
  for (uint32_t i = 0; i < plane.dim;) {
    VF scale[kVectors];
    VF bias[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = hn::Load(d, scales + v * kLanes);
      bias[v] = hn::Load(d, biases + v * kLanes);
    }
    scales += kTileTokens;
    biases += kTileTokens;
    const uint32_t end = std::min(i + plane.codec.group, plane.dim);
    for (; i < end; ++i, bytes += kTileTokens) {
      if (i * kVectors * kLanes % kTileTokens == 0) stream.Next();
      VF element[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        element[r] = hn::Set(d, q[r * plane.dim + i]);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const VF key =
            hn::MulAdd(scale[v], IndexToFloat(bytes + v * kLanes), bias[v]);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sums[r][v] = hn::MulAdd(element[r], key, sums[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, scores + r * kTileTokens + token + v * kLanes);
    }
  }
}

// scores[r][t] for the tokens of panels [first, last).
template <int kRows>
HWY_NOINLINE void ScorePacked(const PackedPlane& plane, const ByteTile& tile,
                              uint32_t first, uint32_t last, const float* q,
                              float* scores, PrefetchStream& stream) {
  size_t t = first * kPanel;
  for (; t + kPackedLanes <= last * kPanel; t += kPackedLanes) {
    ScorePackedColumns<kRows, kPackedVectors>(plane, tile, t, q, scores,
                                              stream);
  }
  for (; t < last * kPanel; t += kPanel) {
    ScorePackedColumns<kRows, kPanelVectors>(plane, tile, t, q, scores, stream);
  }
}

// How a value follows from its index.
enum class Decoding { kAffine, kTable, kGather };

// Values of a tile for AddPacked().
struct ByteRows {
  const uint8_t* panels[kTilePanels];  // [kPanel, dim]
  ByteTile tile;
};

// Indices of the values of tokens [begin, end) as bytes: where they lie, or in
// `tile`.
HWY_INLINE ByteRows SpreadValues(const PackedPlane& plane, const ByteTile& tile,
                                 uint32_t begin, uint32_t end) {
  ByteRows rows = {};
  rows.tile = tile;
  for (size_t p = begin / kPanel; p * kPanel < end; ++p) {
    uint8_t* to = tile.bytes + p * kPanel * plane.dim;
    rows.panels[p] = plane.codec.bits == 8 ? plane.Indices(p, 0) : to;
    ForBits(plane.codec.bits, [&]<int kBits>() HWY_ATTR {
      for (size_t t = 0; kBits < 8 && t < kPanel; ++t) {
        IndexBytes<kBits>(plane.Indices(p, t), plane.dim, to + t * plane.dim);
      }
    });
  }
  return rows;
}

// Value sums of kVectors vectors of dimensions from `i`.
template <int kRows, int kVectors, Decoding kDecoding>
HWY_INLINE void AddPackedColumns(const PackedPlane& plane, const ByteRows& rows,
                                 uint32_t i, uint32_t begin, uint32_t end,
                                 const float* HWY_RESTRICT weights,
                                 const float* HWY_RESTRICT shrink,
                                 float* HWY_RESTRICT out, size_t stride,
                                 PrefetchStream& stream) {
  const DF d;
  const CentroidTable<kDecoding == Decoding::kTable> table(
      kDecoding == Decoding::kAffine ? 2 : plane.codec.bits);
  VF sums[kRows][kVectors];
  const float* scales[kVectors];
  const float* biases[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const size_t group = (i + v * kLanes) / plane.codec.group;
    scales[v] = rows.tile.scales + group * kTileTokens;
    biases[v] = rows.tile.biases + group * kTileTokens;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sums[r][v] = hn::Mul(hn::Load(d, out + r * stride + i + v * kLanes),
                           hn::Set(d, shrink[r]));
    }
  }
  for (size_t t = begin; t < end; ++t) {
    stream.Next();
    const uint8_t* bytes = rows.panels[t / kPanel] + t % kPanel * plane.dim + i;
    VF weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      weight[r] = hn::Set(d, weights[r * kTileTokens + t]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const VF scale = hn::Set(d, scales[v][t]);
      const uint8_t* from = bytes + v * kLanes;
      const VF value =
          kDecoding == Decoding::kAffine
              ? hn::MulAdd(scale, IndexToFloat(from), hn::Set(d, biases[v][t]))
              : hn::Mul(scale, table.Look(from));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(weight[r], value, sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * stride + i + v * kLanes);
    }
  }
}

// out[r] = out[r] * shrink[r] + weights[r] * values over tokens [begin, end).
// Requires: v_dim is a multiple of kPanel.
template <int kRows, Decoding kDecoding>
HWY_NOINLINE void AddPackedAs(const PackedPlane& plane, const ByteRows& rows,
                              uint32_t begin, uint32_t end,
                              const float* weights, const float* shrink,
                              float* out, PrefetchStream& stream) {
  const size_t stride = ValueStride(plane.dim);
  uint32_t i = 0;
  for (; i + kPackedLanes <= plane.dim; i += kPackedLanes) {
    AddPackedColumns<kRows, kPackedVectors, kDecoding>(
        plane, rows, i, begin, end, weights, shrink, out, stride, stream);
  }
  for (; i < plane.dim; i += kPanel) {
    AddPackedColumns<kRows, kPanelVectors, kDecoding>(
        plane, rows, i, begin, end, weights, shrink, out, stride, stream);
  }
}

template <int kRows>
void AddPacked(const PackedPlane& plane, const ByteRows& rows, uint32_t begin,
               uint32_t end, const float* weights, const float* shrink,
               float* out, PrefetchStream& stream) {
  if (plane.codec.coding == Coding::kAffine) {
    AddPackedAs<kRows, Decoding::kAffine>(plane, rows, begin, end, weights,
                                          shrink, out, stream);
  } else if (TableFits(plane.codec.bits)) {
    AddPackedAs<kRows, Decoding::kTable>(plane, rows, begin, end, weights,
                                         shrink, out, stream);
  } else {
    AddPackedAs<kRows, Decoding::kGather>(plane, rows, begin, end, weights,
                                          shrink, out, stream);
  }
}

// Whether whole vectors of one group cover a plane.
HWY_INLINE bool IsWhole(const PlaneCodec& codec, uint32_t dim) {
  return codec.packed() && codec.group % kPanel == 0 && dim % kPanel == 0;
}
#endif  // EVERWARM_HAS_F16

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // EVERWARM_KERNELS_FUSED_PACKED_INL_H_
