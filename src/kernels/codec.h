// How the numbers of one head of one token become bytes of a block.
//
//   f16      halves, rounded to nearest.
//   affine   groups along the head's dimensions share a scale and a bias, both
//            halves: x = scale * index + bias, index of `bits` bits, as near to
//            the numbers as kernels/affine_group.h finds.
//   normal   groups share a scale, their root mean square, as a half;
//            x = scale * centroid[index], with the Lloyd-Max centroids of the
//            standard normal distribution (kernels/centroids.h): for heads
//            that were rotated (kernels/rotation.h). Values only.
//
// Indices of a token are one stream of bits, the lowest bit of a byte first.
// Numbers that are not finite, or beyond the halves, are stored as the nearest
// that can be (a NaN as 0), except in f16.
//
// Threads:  pure, any.
#ifndef EVERWARM_KERNELS_CODEC_H_
#define EVERWARM_KERNELS_CODEC_H_

#include <cstddef>
#include <cstdint>

namespace everwarm::kernels {

enum class Coding { kF16, kAffine, kNormal };

// Of a plane of keys or of values.
struct PlaneCodec {
  Coding coding = Coding::kF16;
  uint32_t bits = 16;  // affine: 2, 4, 5, 8; normal: 2, 3, 4, 5, 8
  uint32_t group = 0;  // a multiple of 8; 0 for f16
  friend bool operator==(const PlaneCodec&, const PlaneCodec&) = default;

  bool packed() const { return coding != Coding::kF16; }
  // Bytes of the numbers of one token in one head.
  uint32_t IndexBytes(uint32_t dim) const { return (dim * bits + 7) / 8; }
  // The last group may be shorter.
  uint32_t NumGroups(uint32_t dim) const {
    return packed() ? (dim + group - 1) / group : 0;
  }
  // Halves of one group: scale and bias, or scale.
  uint32_t GroupParams() const {
    return coding == Coding::kAffine ? 2 : coding == Coding::kNormal ? 1 : 0;
  }
  uint32_t ParamBytes(uint32_t dim) const {
    return NumGroups(dim) * GroupParams() * 2;
  }
};

// The nearest number that a codec with parameters can hold; a NaN is 0.
float Storable(float number);

// Codes one head of one token. `params` as many as the codec has, per group.
void EncodeHead(const PlaneCodec& codec, const float* from, uint32_t dim,
                std::byte* indices, uint16_t* params);

// Number `i` of a head: see DecodeHead().
float DecodeNumber(const PlaneCodec& codec, const std::byte* indices,
                   const uint16_t* params, uint32_t i);

// What attention computes with. The scalar twin of the kernels' decoding.
void DecodeHead(const PlaneCodec& codec, const std::byte* indices,
                const uint16_t* params, uint32_t dim, float* to);

// Floats by index: 2^bits of them.
const float* Centroids(uint32_t bits);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_CODEC_H_
