// Dot products of unsigned codes of weights with signed codes of activations,
// four at a time in each 32-bit lane.
#if defined(EVERWARM_KERNELS_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERWARM_KERNELS_DOT_INL_H_
#undef EVERWARM_KERNELS_DOT_INL_H_
#else
#define EVERWARM_KERNELS_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/linear.h"

// Whether the target has instructions for it.
#undef EVERWARM_HAS_DOT
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
#define EVERWARM_HAS_DOT 1
#else
#define EVERWARM_HAS_DOT 0
#endif

// Highway's own attributes of AVX3_DL lack the one instruction that is wanted.
#undef EVERWARM_DOT_TARGET
#if HWY_TARGET == HWY_AVX3_DL
#define EVERWARM_DOT_TARGET HWY_TARGET_STR ",avx512vnni"
#elif EVERWARM_HAS_DOT
#define EVERWARM_DOT_TARGET HWY_TARGET_STR
#endif

#if EVERWARM_HAS_DOT
HWY_PUSH_ATTRIBUTES(EVERWARM_DOT_TARGET)
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes: outputs, at most half a panel of them.
using DI = hn::CappedTag<int32_t, kPanelOutputs / 2>;
using VI = hn::Vec<DI>;
using DC = hn::Repartition<uint8_t, DI>;
using VC = hn::Vec<DC>;

#if HWY_TARGET == HWY_AVX3_DL
template <int kBits>
class Dot {
 public:
  // The result will be less by `offset`.
  explicit HWY_INLINE Dot(VI offset) : sum_(hn::Sub(hn::Zero(DI()), offset)) {}
  HWY_INLINE void Add(VC codes, VI activations) {
    sum_.raw = _mm512_dpbusd_epi32(sum_.raw, codes.raw, activations.raw);
  }
  HWY_INLINE VI Result() const { return sum_; }

 private:
  VI sum_;
};
#else
HWY_INLINE hn::Vec<hn::Repartition<int16_t, DI>> AddPairs(VC codes, VC signs) {
  using V = hn::Vec<hn::Repartition<int16_t, DI>>;
#if HWY_TARGET == HWY_AVX2
  return V{_mm256_maddubs_epi16(codes.raw, signs.raw)};
#else
  return V{_mm512_maddubs_epi16(codes.raw, signs.raw)};
#endif
}

template <int kBits>
class Dot {
 public:
  explicit HWY_INLINE Dot(VI offset)
      : sum_(kBits == 8 ? hn::Zero(DI()) : hn::Sub(hn::Zero(DI()), offset)),
        pairs_(hn::Zero(D16())) {}
  HWY_INLINE void Add(VC codes, VI activations) {
    const DC d;
    const hn::RebindToSigned<DC> ds;
    const VC a = hn::BitCast(d, activations);
    if constexpr (kBits < 8) {
      pairs_ = hn::Add(pairs_, AddPairs(codes, a));
      // 4 * 2 * 31 * 127 is the most that 16 bits take.
      if (kBits == 5 && ++steps_ == 4) Widen();
    } else {
      // Twice 255 * 127 would not fit. Codes less 128 do, as magnitudes, with
      // their signs given to the activations; that is the offset, too.
      const auto w = hn::BitCast(ds, hn::Xor(codes, hn::Set(d, uint8_t{0x80})));
      const auto s = hn::BitCast(ds, a);
      const auto negated = hn::Sub(hn::Zero(ds), s);
      const auto turned =
          hn::BitCast(d, hn::IfThenElse(hn::Lt(w, hn::Zero(ds)), negated, s));
      pairs_ = AddPairs(hn::BitCast(d, hn::Abs(w)), turned);
      Widen();
    }
  }
  HWY_INLINE VI Result() {
    if constexpr (kBits == 4) Widen();
    return sum_;
  }

 private:
  using D16 = hn::Repartition<int16_t, DI>;
  HWY_INLINE void Widen() {
    VI unused = hn::Zero(DI());
    sum_ = hn::ReorderWidenMulAccumulate(DI(), pairs_, hn::Set(D16(), 1), sum_,
                                         unused);
    pairs_ = hn::Zero(D16());
    steps_ = 0;
  }

  VI sum_;
  hn::Vec<D16> pairs_;
  int steps_ = 0;
};
#endif

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif  // EVERWARM_HAS_DOT

#endif  // EVERWARM_KERNELS_DOT_INL_H_
