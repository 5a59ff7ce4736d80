#include "engine/batch.h"

namespace everwarm::engine {

void Batch::Clear() {
  parts_.clear();
  rows_.clear();
  sequences_.clear();
}

void Batch::Add(Generation* generation, absl::Span<const TokenId> tokens,
                size_t num_groups) {
  const cache::Sequence& sequence = *generation->sequence();
  const bool wants_logits = generation->WantsLogits(tokens.size());
  const auto index = static_cast<uint32_t>(sequences_.size());
  models::StepSequence& tables = sequences_.emplace_back();
  for (size_t group = 0; group < num_groups; ++group) {
    tables.groups.push_back(sequence.blocks(static_cast<GroupIndex>(group)));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows_.push_back({tokens[i], sequence.length() + static_cast<TokenPos>(i),
                     index, wants_logits && i + 1 == tokens.size()});
  }
  parts_.push_back({generation, {tokens.begin(), tokens.end()}, wants_logits});
}

}  // namespace everwarm::engine
