// Half precision in plain C++: for odd widths, for instruction sets without
// conversions, and for tests. Bit for bit what F16C does.
#ifndef EVERWARM_KERNELS_F16_H_
#define EVERWARM_KERNELS_F16_H_

#include <bit>
#include <cstdint>

namespace everwarm::kernels {

inline float F16ToF32(uint16_t half) {
  const uint32_t magnitude = half & 0x7FFFu;
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  if (magnitude >= 0x7C00u) {  // infinity; a NaN becomes quiet
    const uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | magnitude << 13);
  }
  // The exponent bias differs by 112; the product also normalises subnormals.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Rounds to nearest, ties to even; too large becomes infinity.
inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and more
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    // At 0.5 the last bit of an f32 is 2^-24, so the sum does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - 0x3F000000u;
  } else {
    const uint32_t odd = magnitude >> 13 & 1u;
    half = (magnitude - 0x38000000u + 0xFFFu + odd) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_F16_H_
