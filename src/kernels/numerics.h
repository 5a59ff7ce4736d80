// The arithmetic of one row of attention, defined once.
//
// Every path (one row or many, one thread or many, any blocks) runs these sums
// in this order, so that a row's bits depend on its query and its KV alone.
//
//   q'     = q * QueryFactor(shape), rounded to f32; where keys lie rotated,
//            then RotateHead()
//   dot[t] = fused multiply-adds over the dimensions, from 0 and in order
//   x[t]   = dot[t], or with a softcap ScoreCap(shape) * tanh, see below; these
//            are scores in units of log2, so weights are powers of two
//   A partition (kPartitionTokens positions from a multiple of it) starts with
//   max = -inf, lanes[kSumLanes] = 0, acc[v_dim] = 0. Then for each tile
//   (kTileTokens positions from a multiple of it) that the row sees, in order:
//     new    = max(max, x[t] of the visible tokens)
//     shrink = exp2(max - new);  p[t] = exp2(x[t] - new);  max = new
//     lanes  = lanes * shrink, then lanes[t % kSumLanes] += p[t], t in order
//     acc    = acc * shrink, then fused multiply-adds of p[t] * v[t], t in
//     order
//   sum = lanes added by halves (i and i + 8, + 4, + 2, + 1); acc + 0, which
//   makes a zero positive.
//   Partitions are folded in order: the first one is copied, then
//     new = max(M, max);  a = exp2(M - new);  b = exp2(max - new);  M = new
//     S = fma(sum, b, S * a);  O = fma(acc, b, O * a)
//   With a sink of score s (a logit times log2(e)) then
//     new = max(M, s);  a = exp2(M - new);  b = exp2(s - new);  M = new
//     S = fma(S, a, b);  O = O * a
//   out = O * (1 / S); where values lie rotated, then UnrotateHead().
//
// "Fused" holds where the instruction set has it; elsewhere (SSE4, plain C++)
// it is a rounded product and a rounded sum, so that bits differ there.
#ifndef EVERWARM_KERNELS_NUMERICS_H_
#define EVERWARM_KERNELS_NUMERICS_H_

#include <bit>
#include <cstdint>

#include "kernels/attention.h"

namespace everwarm::kernels {

// Tokens per online-softmax step. Every partition is a whole number of tiles.
inline constexpr uint32_t kTileTokens = 64;
inline constexpr uint32_t kSumLanes = 16;
static_assert(kPartitionTokens % kTileTokens == 0);
static_assert(kTileTokens % kSumLanes == 0);
// A tile has one codec.
static_assert(kCodedTokens % kTileTokens == 0);

inline constexpr float kLog2E = 1.44269504088896341f;

// 2^f on [-1/2, 1/2] is 1 + c1 f + ... + c5 f^5 with a relative error below
// 9.2e-8, least maximum under the condition that 2^0 is exactly 1. Stored
// doubled: the power of two that multiplies it is halved, so that inputs at or
// below kExp2Lowest give exactly 0 and no result is subnormal.
inline constexpr float kExp2C0 = 2.0f;
inline constexpr float kExp2C1 = 2 * 0.69314697752f;
inline constexpr float kExp2C2 = 2 * 0.240222419251f;
inline constexpr float kExp2C3 = 2 * 0.0555073376971f;
inline constexpr float kExp2C4 = 2 * 0.0096715232431f;
inline constexpr float kExp2C5 = 2 * 0.00132647572096f;
inline constexpr float kExp2Lowest = -126.0f;
// Adding it rounds to an integer n and leaves n + 126, a halved power's biased
// exponent, in the low bits.
inline constexpr float kExp2Shift = 12582912.0f + 126.0f;

// Scalar twin of the kernels' exp2 for x <= 0; relative error below 2e-7 above
// kExp2Lowest. `fma(a, b, c)` is a * b + c, fused or not as the kernels do it.
template <typename Fma>
float Exp2(float x, Fma fma) {
  if (x < kExp2Lowest) x = kExp2Lowest;
  const float shifted = x + kExp2Shift;
  const float f = x - (shifted - kExp2Shift);
  float p = fma(kExp2C5, f, kExp2C4);
  p = fma(p, f, kExp2C3);
  p = fma(p, f, kExp2C2);
  p = fma(p, f, kExp2C1);
  p = fma(p, f, kExp2C0);
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

// What a query is multiplied by before the dot products. With a softcap the dot
// is 2 log2(e) y, where y is the argument of tanh:
//   tanh(y) = sign(y) (1 - e) / (1 + e),  e = exp2(-2 log2(e) |y|)
inline float QueryFactor(const AttentionShape& shape) {
  if (shape.softcap == 0.0f) return shape.scale * kLog2E;
  return shape.scale / shape.softcap * 2 * kLog2E;
}

// What tanh is multiplied by; 0 where there is no softcap.
inline float ScoreCap(const AttentionShape& shape) {
  return shape.softcap * kLog2E;
}

// First position that a row at `position` sees.
inline TokenPos FirstVisible(const AttentionShape& shape, TokenPos position) {
  if (shape.window == 0 || position < shape.window) return 0;
  return position - shape.window + 1;
}

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_NUMERICS_H_
