// What a take must find, worked out from a list of blocks by the definition
// alone: no tree, no hashing, no cleverness.
#ifndef EVERWARM_TESTING_RESUME_DEFINITION_H_
#define EVERWARM_TESTING_RESUME_DEFINITION_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/layer_group.h"
#include "cache/tier.h"

namespace everwarm::cache {

// The greatest p below prompt.size() for which every group has all positions it
// needs in `blocks`, which are those of one fingerprint.
inline TokenPos ResumeByDefinition(
    const CacheLayout& layout, absl::Span<const BlockIdentity* const> blocks,
    const std::vector<TokenId>& prompt, const NodeId& root) {
  const size_t block_tokens = layout.block_tokens;
  std::vector<std::vector<bool>> have(layout.groups.size(),
                                      std::vector<bool>(prompt.size(), false));
  // Of kRecurrent groups: whether there is a state behind so many tokens.
  std::vector<std::vector<bool>> states(
      layout.groups.size(), std::vector<bool>(prompt.size() + 1, false));
  NodeId parent = root;
  TokenPos known = 0;
  for (size_t start = 0; start < prompt.size(); start += block_tokens) {
    bool any = false;
    for (const BlockIdentity* block : blocks) {
      if (block->parent != parent) {
        continue;
      }
      const std::vector<TokenId>& tokens = block->tokens;
      if (layout.groups[block->key.group].kind == GroupKind::kRecurrent) {
        if (start + tokens.size() <= prompt.size() &&
            std::equal(tokens.begin(), tokens.end(), prompt.begin() + start)) {
          states[block->key.group][start + tokens.size()] = true;
        }
        continue;
      }
      for (size_t i = 0; i < tokens.size() && start + i < prompt.size() &&
                         tokens[i] == prompt[start + i];
           ++i) {
        have[block->key.group][start + i] = true;
        known = std::max<TokenPos>(known, start + i + 1);
        any = true;
      }
    }
    if (!any || start + block_tokens > prompt.size()) {
      break;
    }
    parent = ChildId(parent,
                     absl::MakeConstSpan(prompt).subspan(start, block_tokens));
  }
  TokenPos p = std::min<TokenPos>(known, prompt.size() - 1);
  for (; p > 0; --p) {
    bool all = true;
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      const LayerGroup& group = layout.groups[g];
      if (group.kind == GroupKind::kRecurrent) {
        all = all && states[g][p];
        continue;
      }
      const TokenPos reach = group.kind == GroupKind::kWindow
                                 ? std::min<TokenPos>(p, group.window - 1)
                                 : p;
      for (TokenPos q = p - reach; q < p; ++q) {
        all = all && have[g][q];
      }
    }
    if (all) {
      break;
    }
  }
  return p;
}

}  // namespace everwarm::cache

#endif  // EVERWARM_TESTING_RESUME_DEFINITION_H_
