// Where the coded keys and values of one layer lie in a slot.
//
// Threads: pure, any.
#ifndef EVERWARM_KERNELS_KV_PLANES_H_
#define EVERWARM_KERNELS_KV_PLANES_H_

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "kernels/attention.h"
#include "kernels/codec.h"

namespace everwarm::kernels {

// One token of one head; `params` of codecs that have parameters.
struct CodedHead {
  std::byte* indices = nullptr;
  uint16_t* params = nullptr;
};

// Keys or values, and their parameters. Offsets are bytes of a slot.
struct CodedPlane {
  PlaneCodec codec;
  size_t offset = 0;
  size_t params_offset = 0;
  uint32_t dim = 0;
  uint32_t block_tokens = 0;

  size_t HeadOffset(uint32_t kv_head) const {
    return offset + size_t{kv_head} * block_tokens * codec.IndexBytes(dim);
  }
  size_t HeadParamsOffset(uint32_t kv_head) const {
    return params_offset +
           size_t{kv_head} * block_tokens * codec.ParamBytes(dim);
  }
  // The head of the token at `position` in the slot that holds it.
  CodedHead At(std::byte* slot, uint32_t kv_head, TokenPos position) const {
    const size_t token = position % block_tokens;
    return {slot + HeadOffset(kv_head) + token * codec.IndexBytes(dim),
            reinterpret_cast<uint16_t*>(slot + HeadParamsOffset(kv_head) +
                                        token * codec.ParamBytes(dim))};
  }
};

struct CodedPlanes {
  CodedPlane k;
  CodedPlane v;
};

// Those of the block that holds `position`.
CodedPlanes PlanesAt(const AttentionShape& shape, const LayerOffsets& offsets,
                     TokenPos position);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_KV_PLANES_H_
