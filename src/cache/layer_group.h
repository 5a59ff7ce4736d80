// What kinds of layer state a model has, as far as residency is concerned.
#ifndef EVERWARM_CACHE_LAYER_GROUP_H_
#define EVERWARM_CACHE_LAYER_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/block_geometry.h"
#include "base/by_span.h"
#include "base/ids.h"

namespace everwarm::cache {

enum class GroupKind : uint8_t {
  // Every position attends to all before it.
  kFull,
  // Every position attends to the last `window` positions, itself included.
  kWindow,
  // Compressed KV (MLA); retained and resumed like kFull.
  kLatent,
  // A memory at exact positions, which can be copied but not cut back.
  kRecurrent,
};

struct LayerGroup {
  std::string name;
  GroupKind kind = GroupKind::kFull;
  // kWindow only: tokens a position sees, itself included.
  uint32_t window = 0;
  // kRecurrent: of a state (BlockGeometry::is_state()), at any span.
  BySpan<BlockGeometry> geometry;
};

// At least one group is not kRecurrent: the tokens of a span are found in the
// files of its blocks.
struct CacheLayout {
  // Positions per span: a power of two from 16 to 256.
  uint32_t block_tokens = 64;
  std::vector<LayerGroup> groups;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_LAYER_GROUP_H_
