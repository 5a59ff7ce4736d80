#include "cache/publication.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"

namespace everwarm::cache {
namespace {

// The sequence's block holds the first `tokens` tokens of the residency's node.
void Share(SequenceState& sequence, size_t span, Residency& residency,
           uint32_t tokens, Retention& retention) {
  BlockTable& table = sequence.tables[residency.group];
  const BlockRef& own = table[span];
  if (residency.ram_tokens < tokens) {
    retention.Attach(residency, own, tokens);
    return;
  }
  if (tokens == sequence.layout.block_tokens && residency.ram != own) {
    // Computed twice. The other address stays good until the next Reserve().
    sequence.retired.push_back(own);
    table.Set(span, residency.ram);
  }
}

}  // namespace

void PublishSequence(SequenceState& sequence, TokenTree& tree,
                     Retention& retention, Stores& stores, Sessions& sessions) {
  const uint32_t block_tokens = tree.block_tokens();
  absl::Span<const TokenId> rest = sequence.tokens;
  if (rest.empty()) {
    return;
  }
  std::vector<Node*> path;
  Node* parent = tree.FindOrAddRoot(sequence.root);
  while (!rest.empty()) {
    const uint32_t tokens =
        static_cast<uint32_t>(std::min<size_t>(rest.size(), block_tokens));
    Node* const node = tree.FindOrAdd(parent, rest.first(tokens));
    const size_t span = path.size();
    for (Residency& residency : node->groups) {
      if (span < sequence.tables[residency.group].size() &&
          sequence.tables[residency.group][span]) {
        Share(sequence, span, residency, tokens, retention);
        stores.MarkDirty(residency);
      }
    }
    path.push_back(node);
    parent = node;
    rest.remove_prefix(tokens);
  }
  for (size_t span = path.size(); span-- > 0;) {
    for (Residency& residency : path[span]->groups) {
      if (span < sequence.tables[residency.group].size() &&
          sequence.tables[residency.group][span]) {
        retention.Touch(residency);
      }
    }
  }
  if (!sequence.session.empty()) {
    sessions.Advance(sequence.session, path.back());
  }
  // A model whose groups all let go of a span leaves nothing there.
  tree.Prune(path.back());
}

}  // namespace everwarm::cache
