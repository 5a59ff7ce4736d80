#include "kernels/linear.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/f16.h"
#include "kernels/linear_layout.h"

// clang-format off
#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/dot-inl.h"
// clang-format on

#if EVERWARM_HAS_DOT
HWY_PUSH_ATTRIBUTES(EVERWARM_DOT_TARGET)
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void QuantiseBlock(const float* x, ActivationBlock& block) {
  const hn::CappedTag<float, kLinearBlock> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(di)> d8;
  // As integers, magnitudes have their order and a NaN is the largest.
  auto most = hn::Zero(di);
  for (uint32_t i = 0; i < kLinearBlock; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  }
  const auto largest =
      std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, most)));
  // Below it the factor would not be finite.
  constexpr float kSmallest = 1e-35f;
  const bool usable =
      largest > kSmallest && largest <= std::numeric_limits<float>::max();
  if (!usable) {
    // Zeros, or what makes every product a NaN.
    block = {};
    block.scale = largest > 1.0f || largest != largest
                      ? std::numeric_limits<float>::quiet_NaN()
                      : 0.0f;
    block.scaled_sum = block.scale;
    return;
  }
  const auto factor = hn::Set(d, 127.0f / largest);
  auto sums = hn::Zero(di);
  for (uint32_t i = 0; i < kLinearBlock; i += hn::Lanes(d)) {
    const auto codes = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    sums = hn::Add(sums, codes);
    hn::StoreU(hn::DemoteTo(d8, codes), d8, block.codes + i);
  }
  block.scale = largest / 127.0f;
  block.sum = hn::GetLane(hn::SumOfLanes(di, sums));
  block.scaled_sum = block.scale * static_cast<float>(block.sum);
}

void QuantiseRow(const float* x, uint32_t inputs, ActivationBlock* blocks) {
  for (uint32_t i = 0; i < inputs; i += kLinearBlock) {
    QuantiseBlock(x + i, blocks[i / kLinearBlock]);
  }
}

#if EVERWARM_HAS_DOT
using DF = hn::Rebind<float, DI>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DI());
constexpr int kVectors = kHalfOutputs / kLanes;  // per half of a panel
constexpr uint32_t kSteps = 8;  // dot products of one block of inputs
// What 32 registers, or 16, hold of sums, codes and what is in work.
constexpr int kTileRows = kVectors == 1 ? 6 : 3;
constexpr int kTileHalves = kVectors == 1 ? 2 : 1;

// Codes of one half of a panel in one block.
template <int kBits>
HWY_INLINE void LoadCodes(const uint8_t* from, VC (&codes)[kSteps][kVectors]) {
  const DC d;
  const hn::Repartition<uint16_t, DC> d16;
  constexpr size_t kStepBytes = kHalfOutputs * 4;
  constexpr size_t kVectorBytes = kLanes * 4;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v, from += kVectorBytes) {
    if constexpr (kBits == 8) {
#pragma GCC unroll 8
      for (uint32_t s = 0; s < kSteps; ++s) {
        codes[s][v] = hn::Load(d, from + s * kStepBytes);
      }
      continue;
    }
    const auto low = hn::Set(d, uint8_t{15});
#pragma GCC unroll 4
    for (uint32_t s = 0; s < 4; ++s) {
      const VC both = hn::Load(d, from + s * kStepBytes);
      codes[s][v] = hn::And(both, low);
      codes[s + 4][v] = hn::And(
          hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, both))), low);
    }
    if constexpr (kBits == 5) {
      const auto fifth = hn::BitCast(d16, hn::Load(d, from + 4 * kStepBytes));
      const auto bit = hn::Set(d, uint8_t{16});
#pragma GCC unroll 8
      for (uint32_t s = 0; s < kSteps; ++s) {
        const auto at = s < 4 ? hn::ShiftLeftSame(fifth, 4 - s)
                              : hn::ShiftRightSame(fifth, s - 4);
        codes[s][v] = hn::Or(codes[s][v], hn::And(hn::BitCast(d, at), bit));
      }
    }
  }
}

HWY_INLINE VF LoadHalves(const std::byte* from) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  const hn::Rebind<uint16_t, DF> du16;
  return hn::PromoteTo(
      DF(), hn::BitCast(
                d16, hn::Load(du16, reinterpret_cast<const uint16_t*>(from))));
}

// Some halves of a panel for some rows.
struct Tile {
  const std::byte* panel;
  uint32_t first_half;
  const ActivationBlock* x;
  uint32_t num_blocks;
  float* out;  // of the first half
  size_t out_stride;
  uint32_t outputs;  // from there on
};

HWY_INLINE VI Step(const ActivationBlock& x, uint32_t step) {
  int32_t four;
  std::memcpy(&four, x.codes + 4 * step, sizeof(four));
  return hn::Set(DI(), four);
}

HWY_INLINE void StoreOutputs(const VF (&sums)[kVectors], uint32_t outputs,
                             float* out) {
  const DF d;
  if (outputs >= kHalfOutputs) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[v], d, out + v * kLanes);
    }
    return;
  }
  alignas(64) float all[kHalfOutputs];
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, all + v * kLanes);
  std::copy_n(all, outputs, out);
}

template <WeightType kType, int kRows>
HWY_NOINLINE void MultiplyTile(const Tile& tile) {
  constexpr WeightFormat kFormat = FormatOf(kType);
  constexpr int kZeroShift =
      std::countr_zero(static_cast<unsigned>(kFormat.zero | 1 << 8));
  const DF d;
  VF sums[kRows][kTileHalves][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kTileHalves; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][h][v] = hn::Zero(d);
    }
  }
  const std::byte* block = tile.panel;
  const ActivationBlock* x = tile.x;
  for (uint32_t b = 0; b < tile.num_blocks;
       ++b, ++x, block += kFormat.PanelBlockBytes()) {
    VC codes[kTileHalves][kSteps][kVectors];
    VF scales[kTileHalves][kVectors];
    VF minima[kTileHalves][kVectors];
    const std::byte* params = block + 2 * kFormat.HalfCodesBytes() +
                              tile.first_half * kHalfOutputs * 2;
#pragma GCC unroll 2
    for (int h = 0; h < kTileHalves; ++h) {
      LoadCodes<kFormat.bits>(
          reinterpret_cast<const uint8_t*>(block) +
              (tile.first_half + h) * kFormat.HalfCodesBytes(),
          codes[h]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* at = params + (h * kHalfOutputs + v * kLanes) * 2;
        scales[h][v] = LoadHalves(at);
        if constexpr (kFormat.has_minimum) {
          minima[h][v] = LoadHalves(at + kPanelOutputs * 2);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const ActivationBlock& activations = x[r * tile.num_blocks];
      VI offset = hn::Zero(DI());
      if constexpr (kFormat.zero != 0) {
        offset = hn::ShiftLeft<kZeroShift>(hn::Set(DI(), activations.sum));
      }
      const VF scale = hn::Set(d, activations.scale);
#pragma GCC unroll 2
      for (int h = 0; h < kTileHalves; ++h) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          Dot<kFormat.bits> dot(offset);
#pragma GCC unroll 8
          for (uint32_t s = 0; s < kSteps; ++s) {
            dot.Add(codes[h][s][v], Step(activations, s));
          }
          const VF scaled = hn::Mul(hn::ConvertTo(d, dot.Result()), scale);
          VF sum = hn::MulAdd(scaled, scales[h][v], sums[r][h][v]);
          if constexpr (kFormat.has_minimum) {
            sum = hn::MulAdd(minima[h][v], hn::Set(d, activations.scaled_sum),
                             sum);
          }
          sums[r][h][v] = sum;
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kTileHalves; ++h) {
      const uint32_t before = h * kHalfOutputs;
      if (tile.outputs > before) {
        StoreOutputs(sums[r][h], tile.outputs - before,
                     tile.out + r * tile.out_stride + before);
      }
    }
  }
}

// Calls the kernel for exactly `rows` rows, 1 <= rows <= kRows.
template <WeightType kType, int kRows>
void MultiplyRows(const Tile& tile, uint32_t rows) {
  if (rows == kRows) return MultiplyTile<kType, kRows>(tile);
  if constexpr (kRows > 1) MultiplyRows<kType, kRows - 1>(tile, rows);
}

template <WeightType kType>
void MultiplyType(const LinearArgs& args, uint32_t first, uint32_t last) {
  const size_t panel_bytes =
      args.shape.NumBlocks() * FormatOf(kType).PanelBlockBytes();
  for (uint32_t panel = first; panel < last; ++panel) {
    // As few tiles as can be, about as high as each other.
    const uint32_t tiles = (args.rows + kTileRows - 1) / kTileRows;
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t row =
          static_cast<uint32_t>(uint64_t{args.rows} * t / tiles);
      const uint32_t rows =
          static_cast<uint32_t>(uint64_t{args.rows} * (t + 1) / tiles) - row;
      for (uint32_t half = 0; half < 2; half += kTileHalves) {
        const uint32_t output = panel * kPanelOutputs + half * kHalfOutputs;
        if (output >= args.shape.outputs) continue;
        const Tile tile = {args.packed + panel * panel_bytes,
                           half,
                           args.x + size_t{row} * args.shape.NumBlocks(),
                           args.shape.NumBlocks(),
                           args.out + row * args.out_stride + output,
                           args.out_stride,
                           args.shape.outputs - output};
        MultiplyRows<kType, kTileRows>(tile, rows);
      }
    }
  }
}
#else
// One output of one row, for targets where this layout has no advantage.
template <WeightType kType>
float MultiplyOutput(const std::byte* panel, uint32_t output,
                     const ActivationBlock* x, uint32_t num_blocks) {
  constexpr WeightFormat kFormat = FormatOf(kType);
  float sum = 0.0f;
  for (uint32_t b = 0; b < num_blocks; ++b) {
    const FileBlock block = ReadPanelBlock(kFormat, panel, output);
    panel += kFormat.PanelBlockBytes();
    int32_t dot = -kFormat.zero * x[b].sum;
    for (uint32_t i = 0; i < kLinearBlock; ++i) {
      dot += block.codes[i] * x[b].codes[i];
    }
    const float scaled = static_cast<float>(dot) * x[b].scale;
    sum = scaled * F16ToF32(block.params[0]) + sum;
    if (kFormat.has_minimum) {
      sum = F16ToF32(block.params[1]) * x[b].scaled_sum + sum;
    }
  }
  return sum;
}

template <WeightType kType>
void MultiplyType(const LinearArgs& args, uint32_t first, uint32_t last) {
  const uint32_t end = std::min(args.shape.outputs, last * kPanelOutputs);
  for (uint32_t row = 0; row < args.rows; ++row) {
    for (uint32_t o = first * kPanelOutputs; o < end; ++o) {
      args.out[row * args.out_stride + o] = MultiplyOutput<kType>(
          args.packed + o / kPanelOutputs * PanelBytes(args.shape),
          o % kPanelOutputs, args.x + size_t{row} * args.shape.NumBlocks(),
          args.shape.NumBlocks());
    }
  }
}
#endif  // EVERWARM_HAS_DOT

void MultiplyPanels(const LinearArgs& args, uint32_t first, uint32_t last) {
  switch (args.shape.type) {
    case WeightType::kQ4_0:
      return MultiplyType<WeightType::kQ4_0>(args, first, last);
    case WeightType::kQ4_1:
      return MultiplyType<WeightType::kQ4_1>(args, first, last);
    case WeightType::kQ5_0:
      return MultiplyType<WeightType::kQ5_0>(args, first, last);
    case WeightType::kQ5_1:
      return MultiplyType<WeightType::kQ5_1>(args, first, last);
    case WeightType::kQ8_0:
      return MultiplyType<WeightType::kQ8_0>(args, first, last);
  }
}

bool LinearIsFast() { return EVERWARM_HAS_DOT != 0; }

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
#if EVERWARM_HAS_DOT
HWY_POP_ATTRIBUTES
#else
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace everwarm::kernels {
namespace {
HWY_EXPORT(QuantiseRow);
HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(LinearIsFast);
}  // namespace

void QuantiseRow(const float* x, uint32_t inputs, ActivationBlock* blocks) {
  HWY_DYNAMIC_DISPATCH(QuantiseRow)(x, inputs, blocks);
}

void MultiplyPanels(const LinearArgs& args, uint32_t first, uint32_t last) {
  HWY_DYNAMIC_DISPATCH(MultiplyPanels)(args, first, last);
}

bool LinearIsFast() { return HWY_DYNAMIC_DISPATCH(LinearIsFast)(); }

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
