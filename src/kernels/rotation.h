// Heads turned before they are coded.
//
// A head is multiplied by fixed signs and, part by part, by a Walsh-Hadamard
// matrix over the root of its size, which makes its numbers nearly normal
// whatever they were: one large number no longer takes the resolution of all
// that share its scale. The matrix is orthogonal, so turned keys give turned
// queries the same scores, and turned values are summed as they are and only
// the sum is turned back. The idea is QuaRot's (Ashkboos et al. 2024) and
// TurboQuant's (Zandieh et al. 2025).
//
// Threads:  pure, any. The same bits on every instruction set.
#ifndef EVERWARM_KERNELS_ROTATION_H_
#define EVERWARM_KERNELS_ROTATION_H_

#include <algorithm>
#include <cstdint>

namespace everwarm::kernels {

inline constexpr uint32_t kMinRotatedPart = 8;
inline constexpr uint32_t kMaxRotatedPart = 1024;

// Numbers of a head that are turned together: the largest power of two that
// divides `dim`; 0 where that is too small to be of use.
constexpr uint32_t RotatedPart(uint32_t dim) {
  const uint32_t part = std::min(dim & (~dim + 1), kMaxRotatedPart);
  return part < kMinRotatedPart ? 0 : part;
}

// Turns a head, in place, and back. Require: `dim` is a multiple of `part`,
// which is a power of two from kMinRotatedPart to kMaxRotatedPart.
void RotateHead(float* head, uint32_t dim, uint32_t part);
void UnrotateHead(float* head, uint32_t dim, uint32_t part);

// The scalar twin: the same bits.
void RotateHeadReference(float* head, uint32_t dim, uint32_t part);
void UnrotateHeadReference(float* head, uint32_t dim, uint32_t part);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_ROTATION_H_
