#include "engine/cache_layout.h"

#include "absl/strings/str_cat.h"

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

absl::StatusOr<cache::CacheLayout> CacheLayoutOf(const models::Model& model) {
  cache::CacheLayout layout;
  bool has_blocks = false;
  for (const models::ModelGroup& group : model.groups()) {
    layout.groups.push_back(
        {group.name, KindOf(group), group.window, group.geometry});
    if (!group.recurrent) {
      has_blocks = true;
      layout.block_tokens = group.geometry.rest.block_tokens();
    }
  }
  if (!has_blocks) {
    return absl::UnimplementedError(absl::StrCat(
        model.info().path, ": each of the ", model.info().num_layers,
        " layers is recurrent; a model without keys and values in any layer "
        "does not run here"));
  }
  return layout;
}

}  // namespace everwarm::engine
