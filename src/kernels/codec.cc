#include "kernels/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

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

// Requires: the bytes were zeroed before the first index.
void SetIndex(std::byte* indices, uint32_t bits, uint32_t i, uint32_t index) {
  const uint32_t bit = i * bits;
  const uint32_t window = index << bit % 8;
  indices[bit / 8] |= static_cast<std::byte>(window & 0xFF);
  if (bit % 8 + bits > 8) {
    indices[bit / 8 + 1] |= static_cast<std::byte>(window >> 8);
  }
}

void EncodeAffine(const PlaneCodec& codec, const float* x, uint32_t dim,
                  std::byte* indices, uint16_t* params) {
  const auto largest = static_cast<float>((1u << codec.bits) - 1);
  for (uint32_t begin = 0; begin < dim; begin += codec.group, params += 2) {
    const uint32_t end = std::min(dim, begin + codec.group);
    const auto [low, high] = std::minmax_element(x + begin, x + end);
    params[0] = F32ToF16((*high - *low) / largest);
    params[1] = F32ToF16(*low);
    const float scale = F16ToF32(params[0]);
    const float bias = F16ToF32(params[1]);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    for (uint32_t i = begin; i < end; ++i) {
      const float at = std::clamp((x[i] - bias) * inverse, 0.0f, largest);
      SetIndex(indices, codec.bits, i, static_cast<uint32_t>(at + 0.5f));
    }
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
                  std::byte* indices, uint16_t* params) {
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
      SetIndex(indices, codec.bits, i,
               static_cast<uint32_t>(above - boundaries.begin()));
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
  std::memset(indices, 0, codec.IndexBytes(dim));
  constexpr uint32_t kOnStack = 1024;
  float on_stack[kOnStack];
  std::vector<float> on_heap(dim > kOnStack ? dim : 0);
  float* x = dim > kOnStack ? on_heap.data() : on_stack;
  std::transform(from, from + dim, x, Storable);
  if (codec.coding == Coding::kAffine) {
    EncodeAffine(codec, x, dim, indices, params);
  } else {
    EncodeNormal(codec, x, dim, indices, params);
  }
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
