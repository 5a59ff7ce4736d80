#include "base/block_geometry.h"

#include <cstring>
#include <utility>

namespace everwarm {

BlockGeometry::BlockGeometry(uint32_t num_layers, uint32_t block_tokens,
                             std::vector<PlaneGeometry> planes)
    : num_layers_(num_layers),
      block_tokens_(block_tokens),
      planes_(std::move(planes)) {
  for (const PlaneGeometry& plane : planes_) {
    token_bytes_ += size_t{plane.heads} * plane.token_bytes * num_layers_;
  }
}

size_t BlockGeometry::PlaneOffset(uint32_t layer, uint32_t plane) const {
  size_t offset = token_bytes_ / num_layers_ * block_tokens_ * layer;
  for (uint32_t p = 0; p < plane; ++p) {
    offset += HeadStride(p) * planes_[p].heads;
  }
  return offset;
}

// Calls copy(offset in the slot, offset in the packed form, bytes) for each
// row.
template <typename Copy>
void BlockGeometry::ForEachRow(uint32_t tokens, Copy copy) const {
  size_t slot = 0;
  size_t packed = 0;
  for (uint32_t layer = 0; layer < num_layers_; ++layer) {
    for (uint32_t plane = 0; plane < planes_.size(); ++plane) {
      const size_t bytes = size_t{planes_[plane].token_bytes} * Columns(tokens);
      // Of no tokens there may be no bytes to point to either.
      if (bytes == 0) {
        continue;
      }
      for (uint32_t head = 0; head < planes_[plane].heads; ++head) {
        copy(slot, packed, bytes);
        slot += HeadStride(plane);
        packed += bytes;
      }
    }
  }
}

void BlockGeometry::Pack(const std::byte* slot, uint32_t tokens,
                         std::byte* packed) const {
  ForEachRow(tokens, [&](size_t in_slot, size_t in_packed, size_t n) {
    std::memcpy(packed + in_packed, slot + in_slot, n);
  });
}

void BlockGeometry::Unpack(const std::byte* packed, uint32_t tokens,
                           std::byte* slot) const {
  ForEachRow(tokens, [&](size_t in_slot, size_t in_packed, size_t n) {
    std::memcpy(slot + in_slot, packed + in_packed, n);
  });
}

void BlockGeometry::CopyTokens(const std::byte* from, uint32_t tokens,
                               std::byte* to) const {
  ForEachRow(tokens, [&](size_t in_slot, size_t, size_t n) {
    std::memcpy(to + in_slot, from + in_slot, n);
  });
}

}  // namespace everwarm
