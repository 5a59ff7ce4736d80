#include "cache/publication.h"

#include <algorithm>
#include <optional>
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

// Whether the sequence has a block where this one's node is.
bool HasBlock(const SequenceState& sequence, size_t span,
              const Residency& residency) {
  const BlockTable& table = sequence.tables[residency.group];
  return sequence.layout.groups[residency.group].kind !=
             GroupKind::kRecurrent &&
         span < table.size() && table[span];
}

// How far a passing state reaches, in multiples of what its position is a
// multiple of. With 4, there is one no further behind any place than that place
// is behind the newest: the next multiple of 2^k is at most 2^k behind a place
// between 2^k and 2 * 2^k, so at most 3 * 2^k.
constexpr uint64_t kReach = 4;

// Its last one bit: the largest power of two that it is a multiple of.
TokenPos LowestBit(TokenPos position) { return position & (~position + 1); }

TokenPos PositionOf(const Residency& state) {
  return state.node->start + state.state_tokens;
}

// A later one, at `newest`, stands for it.
bool Passed(const Residency& state, TokenPos newest) {
  const TokenPos position = PositionOf(state);
  return state.passing && position < newest &&
         newest - position > kReach * LowestBit(position);
}

std::vector<Node*> PathTo(Node* end) {
  std::vector<Node*> path;
  for (Node* node = end; node->parent != nullptr; node = node->parent) {
    path.push_back(node);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

void Publication::Publish(SequenceState& sequence, StateUse states) {
  ++counters_.publications;
  const uint32_t block_tokens = tree_.block_tokens();
  absl::Span<const TokenId> rest = sequence.tokens;
  if (rest.empty()) {
    return;
  }
  std::vector<Node*> path;
  Node* parent = tree_.FindOrAddRoot(sequence.root);
  while (!rest.empty()) {
    const uint32_t tokens =
        static_cast<uint32_t>(std::min<size_t>(rest.size(), block_tokens));
    Node* const node = tree_.FindOrAdd(parent, rest.first(tokens));
    const size_t span = path.size();
    for (Residency& residency : node->groups) {
      if (HasBlock(sequence, span, residency)) {
        Share(sequence, span, residency, tokens, retention_);
        stores_.MarkDirty(residency);
      }
    }
    path.push_back(node);
    parent = node;
    rest.remove_prefix(tokens);
  }
  const std::vector<Residency*> shared =
      ShareStates(sequence, path.back(), states);
  for (Residency* state : shared) {
    stores_.MarkDirty(*state);
    retention_.Touch(*state);
  }
  for (size_t span = path.size(); span-- > 0;) {
    for (Residency& residency : path[span]->groups) {
      if (HasBlock(sequence, span, residency)) {
        retention_.Touch(residency);
      }
    }
  }
  if (sequence.session.has_value()) {
    const auto tail = static_cast<uint32_t>(sequence.tokens.size() -
                                            (path.size() - 1) * block_tokens);
    sessions_.Advance(*sequence.session, path.back(), tail);
  }
  if (!shared.empty()) {
    ThinOrWait(path, static_cast<TokenPos>(sequence.tokens.size()));
  }
  // A model whose groups all let go of a span leaves nothing there.
  tree_.Prune(path.back());
}

std::vector<Residency*> Publication::ShareStates(SequenceState& sequence,
                                                 Node* end, StateUse use) {
  std::vector<Residency*> shared;
  if (use == StateUse::kNone || !sequence.StatesAreCurrent()) {
    return shared;
  }
  const TokenPos length = static_cast<TokenPos>(sequence.tokens.size());
  for (GroupIndex g = 0; g < sequence.tables.size(); ++g) {
    if (sequence.layout.groups[g].kind != GroupKind::kRecurrent ||
        !sequence.tables[g][0]) {
      continue;
    }
    Residency& state = tree_.FindOrAddState(end, g, length - end->start);
    state.passing =
        use == StateUse::kPassing && (state.empty() || state.passing);
    counters_.states += state.empty() ? 1 : 0;
    if (!state.ram) {
      const BlockRef& own = sequence.tables[g][0];
      own->set_filled(state.state_tokens);
      retention_.Attach(state, own, state.state_tokens);
    }
    shared.push_back(&state);
  }
  return shared;
}

void Publication::ThinOrWait(const std::vector<Node*>& path, TokenPos newest) {
  // What waits for earlier places of the same path does so with this one.
  std::vector<Node*> replaced;
  std::erase_if(unfinished_, [&](const Unfinished& earlier) {
    const size_t span = earlier.end->start / tree_.block_tokens();
    if (span >= path.size() || path[span] != earlier.end) {
      return false;
    }
    newest = std::max(newest, earlier.newest);
    replaced.push_back(earlier.end);
    return true;
  });
  if (!Thin(path, newest)) {
    tree_.Pin(path.back());
    unfinished_.push_back({path.back(), newest});
  }
  for (Node* end : replaced) {
    tree_.Unpin(end);
  }
}

void Publication::ThinOneMore() {
  to_look_at_ = std::min(to_look_at_, unfinished_.size());
  if (to_look_at_ == 0) {
    return;
  }
  --to_look_at_;
  const Unfinished next = unfinished_.front();
  unfinished_.pop_front();
  if (Thin(PathTo(next.end), next.newest)) {
    tree_.Unpin(next.end);
  } else {
    tree_.Prune(next.end);
    unfinished_.push_back(next);
  }
}

bool Publication::Thin(const std::vector<Node*>& path, TokenPos newest) {
  bool all = true;
  // Worked out when it matters. What goes is before it and does not change it.
  std::optional<TokenPos> durable;
  for (Node* node : path) {
    for (Residency& state : node->states) {
      if (!Passed(state, newest)) {
        continue;
      }
      bool may_go = retention_.MayRetire(state);
      if (may_go && state.tier_tokens > 0) {
        if (!durable.has_value()) {
          durable = copies_.DurablePrefix(path, newest);
        }
        may_go = PositionOf(state) < *durable;
      }
      if (may_go) {
        retention_.Retire(state);
        copies_.Remove(state);
        ++counters_.thinned_states;
      }
      all = all && may_go;
    }
    if (node != path.back()) {
      tree_.Prune(node);
    }
  }
  return all;
}

}  // namespace everwarm::cache
