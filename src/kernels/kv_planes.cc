#include <utility>

#include "kernels/attention.h"

namespace everwarm::kernels {

std::vector<PlaneGeometry> KvPlanes(const AttentionShape& shape) {
  std::vector<PlaneGeometry> planes;
  for (const auto& [codec, dim] : {std::pair(shape.k_codec, shape.k_dim),
                                   std::pair(shape.v_codec, shape.v_dim)}) {
    planes.push_back({shape.num_kv_heads, codec.IndexBytes(dim)});
    if (codec.packed()) {
      planes.push_back({shape.num_kv_heads, codec.ParamBytes(dim)});
    }
  }
  return planes;
}

LayerOffsets KvOffsets(const AttentionShape& shape,
                       const BlockGeometry& geometry, uint32_t layer) {
  LayerOffsets offsets;
  uint32_t plane = 0;
  offsets.k = geometry.PlaneOffset(layer, plane++);
  if (shape.k_codec.packed()) {
    offsets.k_params = geometry.PlaneOffset(layer, plane++);
  }
  offsets.v = geometry.PlaneOffset(layer, plane++);
  if (shape.v_codec.packed()) {
    offsets.v_params = geometry.PlaneOffset(layer, plane++);
  }
  return offsets;
}

}  // namespace everwarm::kernels
