#include "kernels/rotation.h"

#include <array>
#include <cmath>
#include <cstddef>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
// The smallest part is a whole number of these.
using DF = hn::CappedTag<float, kMinRotatedPart>;
using VF = hn::Vec<DF>;
constexpr uint32_t kVector = hn::MaxLanes(DF());

// What the upper numbers of pairs `stride` lanes apart are XORed with.
alignas(32) constexpr float kUpper[3][8] = {
    {0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f},
    {0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f},
    {0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f}};

// a + b in the lower lane of each pair, a - b in the upper one. `swapped` is
// `v` with the lanes of each pair exchanged.
HWY_INLINE VF Pairs(VF v, VF swapped, const float* upper) {
  return hn::Add(swapped, hn::Xor(v, hn::Load(DF(), upper)));
}

// The sums and differences of numbers 1, 2 and, where they fit, 4 lanes apart.
HWY_INLINE VF WithinVector(VF v) {
  const DF d;
  if constexpr (kVector >= 4) {
    v = Pairs(v, hn::Reverse2(d, v), kUpper[0]);
    v = Pairs(v, hn::Reverse2(d, hn::Reverse4(d, v)), kUpper[1]);
  }
  if constexpr (kVector >= 8) {
    v = Pairs(v, hn::Reverse4(d, hn::Reverse8(d, v)), kUpper[2]);
  }
  return v;
}

// The Walsh-Hadamard matrix without its factor.
HWY_INLINE void Transform(float* HWY_RESTRICT x, uint32_t part) {
  const DF d;
  for (uint32_t i = 0; i < part; i += kVector) {
    hn::StoreU(WithinVector(hn::LoadU(d, x + i)), d, x + i);
  }
  for (uint32_t half = kVector; half < part; half *= 2) {
    for (uint32_t begin = 0; begin < part; begin += 2 * half) {
      for (uint32_t i = begin; i < begin + half; i += kVector) {
        const VF a = hn::LoadU(d, x + i);
        const VF b = hn::LoadU(d, x + i + half);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + half);
      }
    }
  }
}

// x[i] *= factors[i % kMaxRotatedPart]
HWY_INLINE void Multiply(float* HWY_RESTRICT x, uint32_t count,
                         const float* HWY_RESTRICT factors) {
  const DF d;
  for (uint32_t i = 0; i < count; i += kVector) {
    const VF f = hn::LoadU(d, factors + i % kMaxRotatedPart);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  }
}

HWY_INLINE void Scale(float* HWY_RESTRICT x, uint32_t count, float factor) {
  const DF d;
  for (uint32_t i = 0; i < count; i += kVector) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  }
}

void Rotate(float* head, uint32_t dim, uint32_t part, float factor,
            const float* signs) {
  Multiply(head, dim, signs);
  for (uint32_t i = 0; i < dim; i += part) Transform(head + i, part);
  Scale(head, dim, factor);
}

void Unrotate(float* head, uint32_t dim, uint32_t part, float factor,
              const float* signs) {
  for (uint32_t i = 0; i < dim; i += part) Transform(head + i, part);
  Scale(head, dim, factor);
  Multiply(head, dim, signs);
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everwarm::kernels {
namespace {

HWY_EXPORT(Rotate);
HWY_EXPORT(Unrotate);

using SignArray = std::array<float, kMaxRotatedPart>;

// One sign for each dimension of a head, as random as a hash (splitmix64).
SignArray MakeSigns() {
  SignArray signs;
  for (uint64_t i = 0; i < signs.size(); ++i) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    signs[i] = (z >> 63) != 0 ? -1.0f : 1.0f;
  }
  return signs;
}

const SignArray& Signs() {
  static const SignArray signs = MakeSigns();
  return signs;
}

float Factor(uint32_t part) {
  return 1.0f / std::sqrt(static_cast<float>(part));
}

void MultiplyBySigns(float* head, uint32_t dim) {
  for (uint32_t i = 0; i < dim; ++i) head[i] *= Signs()[i % kMaxRotatedPart];
}

void TransformParts(float* head, uint32_t dim, uint32_t part) {
  for (uint32_t half = 1; half < part; half *= 2) {
    for (uint32_t begin = 0; begin < dim; begin += 2 * half) {
      for (uint32_t i = begin; i < begin + half; ++i) {
        const float a = head[i];
        const float b = head[i + half];
        head[i] = a + b;
        head[i + half] = a - b;
      }
    }
  }
  for (uint32_t i = 0; i < dim; ++i) head[i] *= Factor(part);
}

}  // namespace

void RotateHead(float* head, uint32_t dim, uint32_t part) {
  HWY_DYNAMIC_DISPATCH(Rotate)
  (head, dim, part, Factor(part), Signs().data());
}

void UnrotateHead(float* head, uint32_t dim, uint32_t part) {
  HWY_DYNAMIC_DISPATCH(Unrotate)
  (head, dim, part, Factor(part), Signs().data());
}

void RotateHeadReference(float* head, uint32_t dim, uint32_t part) {
  MultiplyBySigns(head, dim);
  TransformParts(head, dim, part);
}

void UnrotateHeadReference(float* head, uint32_t dim, uint32_t part) {
  TransformParts(head, dim, part);
  MultiplyBySigns(head, dim);
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
