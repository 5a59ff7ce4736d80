#include "models/kv_sizes.h"

#include <algorithm>

namespace everwarm::models {

KvSizes KvSizesOf(absl::Span<const ModelGroup> groups) {
  KvSizes sizes;
  for (const ModelGroup& group : groups) {
    const BySpan<BlockGeometry>& geometry = group.geometry;
    if (group.recurrent) {
      sizes.state_bytes += geometry.rest.token_bytes();
      continue;
    }
    sizes.bytes_per_token += geometry.rest.token_bytes();
    sizes.bytes_per_first_token += geometry.At(0).token_bytes();
    sizes.first_tokens =
        std::max(sizes.first_tokens,
                 uint64_t{geometry.first_spans} * geometry.rest.block_tokens());
  }
  if (sizes.first_tokens == 0) {
    sizes.bytes_per_first_token = 0;
  }
  return sizes;
}

}  // namespace everwarm::models
