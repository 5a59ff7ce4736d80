#include "kernels/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/affine_group.h"
#include "kernels/centroids.h"
#include "kernels/f16.h"

namespace everwarm::kernels {
namespace {

constexpr float kLargestHalf = 65504.0f;

uint32_t Index(const std::byte* indices, uint32_t bits, uint32_t i) {
  const uint32_t bit = i * bits;
  uint32_t window = static_cast<uint32_t>(indices[bit / 8]);
  if (bit % 8 + bits > 8) {
    window |= static_cast<uint32_t>(indices[bit / 8 + 1]) << 8;
  }
  return window >> bit % 8 & ((1u << bits) - 1);
}

// Indices as a stream of bits.
void Pack(const uint8_t* from, uint32_t count, uint32_t bits, std::byte* to) {
  uint32_t pending = 0;
  uint32_t pending_bits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    pending |= uint32_t{from[i]} << pending_bits;
    for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8) {
      *to++ = static_cast<std::byte>(pending & 0xFF);
      pending >>= 8;
    }
  }
  if (pending_bits > 0) *to = static_cast<std::byte>(pending);
}

void EncodeAffine(const PlaneCodec& codec, const float* x, uint32_t dim,
                  uint8_t* indices, uint16_t* params) {
  for (uint32_t begin = 0; begin < dim; begin += codec.group, params += 2) {
    const AffineParams group =
        CodeAffineGroup(x + begin, std::min(dim - begin, codec.group),
                        codec.bits, indices + begin);
    params[0] = group.scale;
    params[1] = group.bias;
  }
}

struct Quantiser {
  std::vector<float> centroids;
  // Between them.
  std::vector<float> boundaries;
};

Quantiser MakeQuantiser(const float* positive, size_t count) {
  Quantiser quantiser;
  for (size_t i = count; i-- > 0;) quantiser.centroids.push_back(-positive[i]);
  quantiser.centroids.insert(quantiser.centroids.end(), positive,
                             positive + count);
  for (size_t i = 1; i < quantiser.centroids.size(); ++i) {
    quantiser.boundaries.push_back(
        0.5f * (quantiser.centroids[i - 1] + quantiser.centroids[i]));
  }
  return quantiser;
}

const Quantiser& QuantiserOf(uint32_t bits) {
  static const Quantiser two = MakeQuantiser(kCentroids2, 2);
  static const Quantiser three = MakeQuantiser(kCentroids3, 4);
  static const Quantiser four = MakeQuantiser(kCentroids4, 8);
  static const Quantiser five = MakeQuantiser(kCentroids5, 16);
  static const Quantiser eight = MakeQuantiser(kCentroids8, 128);
  switch (bits) {
    case 2:
      return two;
    case 3:
      return three;
    case 4:
      return four;
    case 5:
      return five;
    default:
      return eight;
  }
}

void EncodeNormal(const PlaneCodec& codec, const float* x, uint32_t dim,
                  uint8_t* indices, uint16_t* params) {
  const std::vector<float>& boundaries = QuantiserOf(codec.bits).boundaries;
  for (uint32_t begin = 0; begin < dim; begin += codec.group, ++params) {
    const uint32_t end = std::min(dim, begin + codec.group);
    float squares = 0.0f;
    for (uint32_t i = begin; i < end; ++i) squares += x[i] * x[i];
    const float rms = std::sqrt(squares / static_cast<float>(end - begin));
    params[0] = F32ToF16(std::min(rms, kLargestHalf));
    const float scale = F16ToF32(params[0]);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    for (uint32_t i = begin; i < end; ++i) {
      const auto above = std::upper_bound(boundaries.begin(), boundaries.end(),
                                          x[i] * inverse);
      indices[i] = static_cast<uint8_t>(above - boundaries.begin());
    }
  }
}

}  // namespace

float Storable(float number) {
  if (std::isnan(number)) return 0.0f;
  return std::clamp(number, -kLargestHalf, kLargestHalf);
}

void EncodeHead(const PlaneCodec& codec, const float* from, uint32_t dim,
                std::byte* indices, uint16_t* params) {
  constexpr uint32_t kOnStack = 1024;
  float on_stack[kOnStack];
  uint8_t indices_on_stack[kOnStack];
  std::vector<float> on_heap(dim > kOnStack ? dim : 0);
  std::vector<uint8_t> indices_on_heap(on_heap.size());
  float* x = dim > kOnStack ? on_heap.data() : on_stack;
  uint8_t* each = dim > kOnStack ? indices_on_heap.data() : indices_on_stack;
  std::transform(from, from + dim, x, Storable);
  if (codec.coding == Coding::kAffine) {
    EncodeAffine(codec, x, dim, each, params);
  } else {
    EncodeNormal(codec, x, dim, each, params);
  }
  Pack(each, dim, codec.bits, indices);
}

float DecodeNumber(const PlaneCodec& codec, const std::byte* indices,
                   const uint16_t* params, uint32_t i) {
  if (codec.coding == Coding::kF16) {
    uint16_t half;
    std::memcpy(&half, indices + i * sizeof(half), sizeof(half));
    return F16ToF32(half);
  }
  const uint32_t index = Index(indices, codec.bits, i);
  const uint32_t group = i / codec.group;
  if (codec.coding == Coding::kAffine) {
    return std::fma(F16ToF32(params[2 * group]), static_cast<float>(index),
                    F16ToF32(params[2 * group + 1]));
  }
  return F16ToF32(params[group]) * Centroids(codec.bits)[index];
}

void DecodeHead(const PlaneCodec& codec, const std::byte* indices,
                const uint16_t* params, uint32_t dim, float* to) {
  for (uint32_t i = 0; i < dim; ++i) {
    to[i] = DecodeNumber(codec, indices, params, i);
  }
}

const float* Centroids(uint32_t bits) {
  return QuantiserOf(bits).centroids.data();
}

}  // namespace everwarm::kernels
