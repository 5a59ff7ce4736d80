#include "kernels/affine_group.h"

#include <algorithm>

#include "kernels/codec.h"
#include "kernels/f16.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/affine_group.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#ifndef EVERWARM_KERNELS_AFFINE_GROUP_CC_
#define EVERWARM_KERNELS_AFFINE_GROUP_CC_

namespace everwarm::kernels {
namespace {

// Lanes that sums are kept in, on every instruction set.
constexpr uint32_t kFitLanes = 4;

struct Line {
  float scale;
  float bias;
  float largest;  // index
  // What a number's distance from the bias is multiplied by; 0 where the scale
  // is far below the smallest half, so that nothing overflows.
  float Inverse() const { return scale < 0x1p-30f ? 0.0f : 1.0f / scale; }
};

// Sums over a group of numbers x with indices i.
struct FitSums {
  float i = 0.0f;
  float ii = 0.0f;
  float x = 0.0f;
  float ix = 0.0f;
};

struct Range {
  float low;
  float high;
};

// Where the fit begins.
Line FirstLine(const Range& range, uint32_t bits) {
  const auto largest = static_cast<float>((1u << bits) - 1);
  if (bits > kMostFittedBits) {
    return {(range.high - range.low) / largest, range.low, largest};
  }
  const float half = (range.high - range.low) * (0.5f * kFirstRange);
  const float middle = (range.high + range.low) * 0.5f;
  return {2.0f * half / largest, middle - half, largest};
}

// Moves the line to where least squares have it; false if they do not say.
bool Refit(const FitSums& sums, uint32_t count, Line& line) {
  const auto n = static_cast<float>(count);
  const float variance = sums.ii - sums.i * sums.i / n;
  if (!(variance > 0.0f)) return false;
  const float scale = (sums.ix - sums.i * sums.x / n) / variance;
  if (!(scale > 0.0f)) return false;
  line.scale = scale;
  line.bias = (sums.x - scale * sums.i) / n;
  return true;
}

AffineParams AsHalves(Line& line) {
  const AffineParams params = {F32ToF16(Storable(line.scale)),
                               F32ToF16(Storable(line.bias))};
  line.scale = F16ToF32(params.scale);
  line.bias = F16ToF32(params.bias);
  return params;
}

uint32_t NearestIndex(float x, const Line& line, float inverse) {
  const float at = (x - line.bias) * inverse;
  const float within = std::min(std::max(at, 0.0f), line.largest);
  return static_cast<uint32_t>(within + 0.5f);
}

void AddTo(FitSums& sums, float x, float index) {
  sums.i += index;
  sums.ii += index * index;
  sums.x += x;
  sums.ix += index * x;
}

float SumOf(const float* lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// The lanes' sums in one.
FitSums Total(const float (&lanes)[4][kFitLanes]) {
  return {SumOf(lanes[0]), SumOf(lanes[1]), SumOf(lanes[2]), SumOf(lanes[3])};
}

}  // namespace
}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_AFFINE_GROUP_CC_

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
AffineParams CodeGroup(const float* x, uint32_t count, uint32_t bits,
                       uint8_t* indices) {
  return CodeAffineGroupReference(x, count, bits, indices);
}
#else
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::FixedTag<float, kFitLanes>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
static_assert(hn::MaxLanes(DF()) == kFitLanes);

HWY_INLINE Range RangeOf(const float* HWY_RESTRICT x, uint32_t count) {
  const DF d;
  Range range = {x[0], x[0]};
  uint32_t k = 0;
  if (count >= kFitLanes) {
    VF low = hn::LoadU(d, x);
    VF high = low;
    for (k = kFitLanes; k + kFitLanes <= count; k += kFitLanes) {
      low = hn::Min(low, hn::LoadU(d, x + k));
      high = hn::Max(high, hn::LoadU(d, x + k));
    }
    range = {hn::GetLane(hn::MinOfLanes(d, low)),
             hn::GetLane(hn::MaxOfLanes(d, high))};
  }
  for (; k < count; ++k) {
    range.low = std::min(range.low, x[k]);
    range.high = std::max(range.high, x[k]);
  }
  return range;
}

// Indices of kFitLanes numbers.
HWY_INLINE hn::Vec<DI> Nearest(VF x, const Line& line, float inverse) {
  const DF d;
  const VF at = hn::Mul(hn::Sub(x, hn::Set(d, line.bias)), hn::Set(d, inverse));
  const VF within = hn::Min(hn::Max(at, hn::Zero(d)), hn::Set(d, line.largest));
  return hn::ConvertTo(DI(), hn::Add(within, hn::Set(d, 0.5f)));
}

HWY_INLINE FitSums SumFit(const float* HWY_RESTRICT x, uint32_t count,
                          const Line& line) {
  const DF d;
  const float inverse = line.Inverse();
  VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  uint32_t k = 0;
  for (; k + kFitLanes <= count; k += kFitLanes) {
    const VF number = hn::LoadU(d, x + k);
    const VF index = hn::ConvertTo(d, Nearest(number, line, inverse));
    sums[0] = hn::Add(sums[0], index);
    sums[1] = hn::Add(sums[1], hn::Mul(index, index));
    sums[2] = hn::Add(sums[2], number);
    sums[3] = hn::Add(sums[3], hn::Mul(index, number));
  }
  alignas(16) float lanes[4][kFitLanes];
  for (uint32_t s = 0; s < 4; ++s) hn::Store(sums[s], d, lanes[s]);
  FitSums total = Total(lanes);
  for (; k < count; ++k) {
    AddTo(total, x[k], static_cast<float>(NearestIndex(x[k], line, inverse)));
  }
  return total;
}

AffineParams CodeGroup(const float* HWY_RESTRICT x, uint32_t count,
                       uint32_t bits, uint8_t* HWY_RESTRICT indices) {
  const DF d;
  Line line = FirstLine(RangeOf(x, count), bits);
  for (uint32_t r = 0; bits <= kMostFittedBits && r < kFitRounds; ++r) {
    if (!Refit(SumFit(x, count, line), count, line)) break;
  }
  const AffineParams params = AsHalves(line);
  const float inverse = line.Inverse();
  const hn::Rebind<uint8_t, DF> bytes;
  uint32_t k = 0;
  for (; k + kFitLanes <= count; k += kFitLanes) {
    hn::StoreU(hn::DemoteTo(bytes, Nearest(hn::LoadU(d, x + k), line, inverse)),
               bytes, indices + k);
  }
  for (; k < count; ++k) {
    indices[k] = static_cast<uint8_t>(NearestIndex(x[k], line, inverse));
  }
  return params;
}
#endif

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everwarm::kernels {
namespace {

HWY_EXPORT(CodeGroup);

FitSums SumFitReference(const float* x, uint32_t count, const Line& line) {
  const float inverse = line.Inverse();
  const uint32_t whole = count / kFitLanes * kFitLanes;
  FitSums by_lane[kFitLanes];
  for (uint32_t k = 0; k < whole; ++k) {
    AddTo(by_lane[k % kFitLanes], x[k],
          static_cast<float>(NearestIndex(x[k], line, inverse)));
  }
  float lanes[4][kFitLanes];
  for (uint32_t lane = 0; lane < kFitLanes; ++lane) {
    lanes[0][lane] = by_lane[lane].i;
    lanes[1][lane] = by_lane[lane].ii;
    lanes[2][lane] = by_lane[lane].x;
    lanes[3][lane] = by_lane[lane].ix;
  }
  FitSums total = Total(lanes);
  for (uint32_t k = whole; k < count; ++k) {
    AddTo(total, x[k], static_cast<float>(NearestIndex(x[k], line, inverse)));
  }
  return total;
}

}  // namespace

AffineParams CodeAffineGroup(const float* x, uint32_t count, uint32_t bits,
                             uint8_t* indices) {
  return HWY_DYNAMIC_DISPATCH(CodeGroup)(x, count, bits, indices);
}

AffineParams CodeAffineGroupReference(const float* x, uint32_t count,
                                      uint32_t bits, uint8_t* indices) {
  const auto [low, high] = std::minmax_element(x, x + count);
  Line line = FirstLine({*low, *high}, bits);
  for (uint32_t r = 0; bits <= kMostFittedBits && r < kFitRounds; ++r) {
    if (!Refit(SumFitReference(x, count, line), count, line)) break;
  }
  const AffineParams params = AsHalves(line);
  for (uint32_t k = 0; k < count; ++k) {
    indices[k] = static_cast<uint8_t>(NearestIndex(x[k], line, line.Inverse()));
  }
  return params;
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
