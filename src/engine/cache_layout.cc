#include "engine/cache_layout.h"

namespace everwarm::engine {
namespace {

cache::GroupKind KindOf(const models::ModelGroup& group) {
  if (group.recurrent) {
    return cache::GroupKind::kRecurrent;
  }
  return group.window == 0 ? cache::GroupKind::kFull
                           : cache::GroupKind::kWindow;
}

}  // namespace

cache::CacheLayout CacheLayoutOf(const models::Model& model) {
  cache::CacheLayout layout;
  for (const models::ModelGroup& group : model.groups()) {
    layout.groups.push_back(
        {group.name, KindOf(group), group.window, group.geometry});
    if (!group.recurrent) {
      layout.block_tokens = group.geometry.block_tokens();
    }
  }
  return layout;
}

}  // namespace everwarm::engine
