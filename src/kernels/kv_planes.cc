#include "kernels/attention.h"

namespace everwarm::kernels {

std::vector<PlaneGeometry> KvPlanes(const AttentionShape& shape) {
  std::vector<PlaneGeometry> planes;
  const auto add = [&](const PlaneCodec& codec, uint32_t dim) {
    planes.push_back({shape.num_kv_heads, codec.IndexBytes(dim)});
    if (codec.packed()) {
      planes.push_back({shape.num_kv_heads, codec.ParamBytes(dim)});
    }
  };
  add(shape.k_codec, shape.k_dim);
  if (!shape.v_in_k) {
    add(shape.v_codec, shape.v_dim);
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
  if (shape.v_in_k) {
    offsets.v = offsets.k;
    offsets.v_params = offsets.k_params;
    return offsets;
  }
  offsets.v = geometry.PlaneOffset(layer, plane++);
  if (shape.v_codec.packed()) {
    offsets.v_params = geometry.PlaneOffset(layer, plane++);
  }
  return offsets;
}

}  // namespace everwarm::kernels
