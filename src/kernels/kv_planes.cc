#include "kernels/kv_planes.h"

namespace everwarm::kernels {
namespace {

// The shape as if all positions were coded like the first.
AttentionShape OfFirst(AttentionShape shape) {
  shape.k_codec = shape.first.k_codec;
  shape.v_codec = shape.first.v_codec;
  return shape;
}

std::vector<PlaneGeometry> Planes(const AttentionShape& shape) {
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

PlaneOffsets Offsets(const AttentionShape& shape, const BlockGeometry& geometry,
                     uint32_t layer) {
  PlaneOffsets offsets;
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

}  // namespace

BySpan<BlockGeometry> KvGeometry(const AttentionShape& shape,
                                 uint32_t num_layers) {
  const auto geometry = [&](const AttentionShape& coded) {
    return BlockGeometry(num_layers, shape.block_tokens, Planes(coded));
  };
  if (shape.first.tokens == 0) return geometry(shape);
  return {shape.first.tokens / shape.block_tokens, geometry(OfFirst(shape)),
          geometry(shape)};
}

LayerOffsets KvOffsets(const AttentionShape& shape,
                       const BySpan<BlockGeometry>& geometry, uint32_t layer) {
  LayerOffsets offsets;
  offsets.rest = Offsets(shape, geometry.rest, layer);
  if (shape.first.tokens > 0) {
    offsets.first = Offsets(OfFirst(shape), geometry.first, layer);
  }
  return offsets;
}

CodedPlanes PlanesAt(const AttentionShape& shape, const LayerOffsets& offsets,
                     TokenPos position) {
  const bool first = position < shape.first.tokens;
  const PlaneOffsets& at = first ? offsets.first : offsets.rest;
  return {{first ? shape.first.k_codec : shape.k_codec, at.k, at.k_params,
           shape.k_dim, shape.block_tokens},
          {first ? shape.first.v_codec : shape.v_codec, at.v, at.v_params,
           shape.StoredValueDim(), shape.block_tokens}};
}

}  // namespace everwarm::kernels
