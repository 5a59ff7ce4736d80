#include "cache/taking.h"

#include <algorithm>
#include <utility>

namespace everwarm::cache {
namespace {

// Tokens of the span that lie before the resume point.
uint32_t TokensBefore(TokenPos resume_point, const Waiting::Span& span,
                      uint32_t block_tokens) {
  return resume_point > span.start
             ? std::min(resume_point - span.start, block_tokens)
             : 0;
}

// What a source is worth: tokens, then tokens without a read.
std::pair<uint32_t, uint32_t> Worth(const Residency& residency,
                                    uint32_t common) {
  const uint32_t anywhere =
      std::max(residency.ram_tokens, residency.tier_tokens);
  return {std::min(anywhere, common), std::min(residency.ram_tokens, common)};
}

// What the load of this residency is for.
Waiting::Source& SourceOf(Waiting::Span& span, const Residency& residency) {
  if (!residency.is_state()) {
    return span.sources[residency.group];
  }
  return *std::find_if(span.states.begin(), span.states.end(),
                       [&](const Waiting::Source& state) {
                         return state.residency == &residency;
                       });
}

}  // namespace

void Taking::Begin(SequenceState& sequence, absl::Span<const TokenId> prompt,
                   Purpose purpose) {
  if (purpose == Purpose::kRequest) {
    ++counters_.takes;
    counters_.tokens_asked += prompt.size();
  }
  sequence.waiting = std::make_unique<Waiting>();
  Waiting& waiting = *sequence.waiting;
  waiting.purpose = purpose;
  waiting.prompt.assign(prompt.begin(), prompt.end());
  Walk(waiting, sequence.root, &sequence.reuse.matched);
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    if (HasBlocks(g)) {
      sequence.tables[g].Resize(waiting.spans.size());
    }
  }
  for (const Waiting::Span& span : waiting.spans) {
    for (const Waiting::Source& source : span.sources) {
      tree_.Pin(source.residency->node);
    }
    for (const Waiting::Source& state : span.states) {
      ++state.residency->plans;
    }
  }
  // Of a request, something has to be left to compute.
  const size_t most =
      purpose == Purpose::kRequest ? prompt.size() - 1 : prompt.size();
  Plan(sequence, static_cast<TokenPos>(most));
}

void Taking::Walk(Waiting& waiting, const NodeId& root, TokenPos* matched) {
  const uint32_t block_tokens = tree_.block_tokens();
  const Node* parent = tree_.FindRoot(root);
  absl::Span<const TokenId> rest = waiting.prompt;
  while (parent != nullptr && !rest.empty()) {
    const absl::Span<const TokenId> here =
        rest.first(std::min<size_t>(rest.size(), block_tokens));
    Node* const exact =
        here.size() == block_tokens ? tree_.Find(parent, here) : nullptr;
    Waiting::Span span = FindSources(parent, exact, here);
    if (span.matched == 0) {
      return;
    }
    for (Residency* state : tree_.StatesAlong(parent, here)) {
      span.states.push_back({state, state->state_tokens, 0});
    }
    span.start = *matched;
    *matched += span.matched;
    rest.remove_prefix(here.size());
    parent = exact;
    waiting.spans.push_back(std::move(span));
  }
}

Waiting::Span Taking::FindSources(const Node* parent, Node* exact,
                                  absl::Span<const TokenId> span) const {
  const uint32_t whole = static_cast<uint32_t>(span.size());
  Waiting::Span found;
  if (exact != nullptr) {
    found.matched = whole;
    bool complete = true;
    for (Residency& residency : exact->groups) {
      found.sources.push_back({&residency, whole, 0});
      complete = complete && (!HasBlocks(residency.group) ||
                              Worth(residency, whole).first == whole);
    }
    if (complete || parent->children == 1) {
      return found;
    }
  }
  for (const TokenTree::Neighbour& neighbour : tree_.Neighbours(parent, span)) {
    found.matched = std::max(found.matched, neighbour.common);
    found.sources.resize(neighbour.node->groups.size());
    for (size_t g = 0; g < found.sources.size(); ++g) {
      Waiting::Source& source = found.sources[g];
      Residency& other = neighbour.node->groups[g];
      if (source.residency == nullptr ||
          Worth(other, neighbour.common) >
              Worth(*source.residency, source.common)) {
        source = {&other, neighbour.common, 0};
      }
    }
  }
  return found;
}

uint32_t Taking::Covered(const Waiting& waiting,
                         const Waiting::Source& source) {
  const Residency& residency = *source.residency;
  uint32_t covered = std::max(source.held, residency.ram_tokens);
  if (!waiting.without_tier && !waiting.unreadable.contains(&residency)) {
    covered =
        std::max({covered, residency.tier_tokens, residency.loading_tokens});
  }
  return std::min(covered, source.common);
}

TokenPos Taking::ResumePoint(const Waiting& waiting, TokenPos limit) const {
  SpanStates states;
  ResumeScan scan(parts_.layout, states);
  std::vector<uint32_t> covered(parts_.layout.groups.size());
  for (const Waiting::Span& span : waiting.spans) {
    if (span.start >= limit) {
      break;
    }
    for (size_t g = 0; g < covered.size(); ++g) {
      covered[g] = Covered(waiting, span.sources[g]);
    }
    states.Clear();
    for (const Waiting::Source& state : span.states) {
      if (Covered(waiting, state) == state.common) {
        states.Add(state.residency->group, span.start + state.common);
      }
    }
    scan.Add(std::min(span.matched, limit - span.start), covered);
  }
  return scan.resume_point();
}

void Taking::Plan(SequenceState& sequence, TokenPos limit) {
  Waiting& waiting = *sequence.waiting;
  LeaveLoads(sequence);
  do {
    limit = ResumePoint(waiting, limit);
    waiting.resume_point = limit;
  } while (!Read(sequence));
  sequence.tokens.assign(waiting.prompt.begin(),
                         waiting.prompt.begin() + limit);
  if (waiting.loads.empty()) {
    Finish(sequence);
  }
}

Taking::Reads Taking::Lend(SequenceState& sequence) {
  Reads reads;
  LendBlocks(sequence, reads);
  LendStates(sequence, reads);
  return reads;
}

void Taking::LendBlocks(SequenceState& sequence, Reads& reads) {
  Waiting& waiting = *sequence.waiting;
  const uint32_t block_tokens = tree_.block_tokens();
  std::vector<std::pair<uint32_t, uint32_t>> needed;
  for (const LayerGroup& group : parts_.layout.groups) {
    needed.push_back(NeededSpans(group, block_tokens, waiting.resume_point));
  }
  for (uint32_t s = 0; s < waiting.spans.size(); ++s) {
    Waiting::Span& span = waiting.spans[s];
    const uint32_t need =
        TokensBefore(waiting.resume_point, span, block_tokens);
    for (size_t g = 0; g < needed.size(); ++g) {
      Waiting::Source& source = span.sources[g];
      Residency& residency = *source.residency;
      BlockTable& table = sequence.tables[g];
      if (!HasBlocks(g)) {
        continue;
      }
      if (s < needed[g].first || s >= needed[g].second) {
        table.Set(s, BlockRef());
        source.held = 0;
      } else if (source.held >= need) {
        continue;
      } else if (residency.ram_tokens >= need) {
        table.Set(s, residency.ram);
        source.held = std::min(residency.ram_tokens, source.common);
      } else {
        reads.residencies.push_back(&residency);
        reads.waiters.push_back({&sequence, s});
      }
    }
  }
}

void Taking::LendStates(SequenceState& sequence, Reads& reads) {
  Waiting& waiting = *sequence.waiting;
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    if (!HasBlocks(g)) {
      sequence.tables[g].Set(0, BlockRef());
    }
  }
  for (uint32_t s = 0; s < waiting.spans.size(); ++s) {
    Waiting::Span& span = waiting.spans[s];
    for (Waiting::Source& state : span.states) {
      Residency& residency = *state.residency;
      state.held = 0;
      if (span.start + state.common != waiting.resume_point) {
        continue;
      }
      if (residency.ram) {
        sequence.tables[residency.group].Set(0, residency.ram);
        state.held = state.common;
      } else {
        reads.residencies.push_back(&residency);
        reads.waiters.push_back({&sequence, s});
      }
    }
  }
}

bool Taking::Read(SequenceState& sequence) {
  Waiting& waiting = *sequence.waiting;
  const Reads reads = Lend(sequence);
  size_t bytes = 0;
  for (const Residency* residency : reads.residencies) {
    bytes += parts_.pool->geometry(residency->group, residency->node->start)
                 .slot_bytes();
  }
  retention_.MakeRoom(bytes);
  for (size_t i = 0; i < reads.residencies.size(); ++i) {
    Residency& residency = *reads.residencies[i];
    const Load::Waiter& waiter = reads.waiters[i];
    const uint32_t need = TokensBefore(
        waiting.resume_point, waiting.spans[waiter.span], tree_.block_tokens());
    absl::StatusOr<Load*> load = loads_.Join(residency, need, waiter);
    if (!load.ok()) {
      parts_.logger->warn("a stored block cannot be read: {}",
                          load.status().ToString());
      waiting.unreadable.insert(&residency);
      LeaveLoads(sequence);
      return false;
    }
    waiting.loads.push_back(*load);
  }
  return true;
}

void Taking::LeaveLoads(SequenceState& sequence) {
  for (Load* load : sequence.waiting->loads) {
    Loads::Leave(*load, sequence);
  }
  sequence.waiting->loads.clear();
}

void Taking::OnLoaded(const BlockKey& key, const BlockRef& block) {
  const std::unique_ptr<Load> load = loads_.End(key);
  if (load == nullptr) {
    return;
  }
  block->set_filled(load->tokens);
  Residency& residency = *load->residency;
  if (residency.ram_tokens < load->tokens) {
    retention_.Attach(residency, block, load->tokens);
  }
  for (const Load::Waiter& waiter : load->waiters) {
    Waiting& waiting = *waiter.sequence->waiting;
    Waiting::Span& span = waiting.spans[waiter.span];
    Waiting::Source& source = SourceOf(span, residency);
    waiter.sequence->tables[residency.group].Set(
        residency.is_state() ? 0 : waiter.span, block);
    source.held = std::min(load->tokens, source.common);
    span.from_tier = true;
    std::erase(waiting.loads, load.get());
    if (waiting.loads.empty()) {
      Finish(*waiter.sequence);
    }
  }
  tree_.Prune(residency.node);
}

void Taking::OnLoadFailed(const BlockKey& key, const absl::Status& status) {
  const std::unique_ptr<Load> load = loads_.End(key);
  copies_.Drop(key);
  if (load == nullptr) {
    return;
  }
  Residency& residency = *load->residency;
  Node* const node = residency.node;
  parts_.logger->warn(
      "a stored block of group {} at position {} was not read, {} sequences "
      "resume earlier: {}",
      residency.group, node->start, load->waiters.size(), status.ToString());
  tree_.Pin(node);
  for (const Load::Waiter& waiter : load->waiters) {
    std::erase(waiter.sequence->waiting->loads, load.get());
    Plan(*waiter.sequence, waiter.sequence->waiting->resume_point);
  }
  tree_.Unpin(node);
}

void Taking::GiveUpReads() {
  uint64_t requests = 0;
  for (SequenceState* sequence : loads_.Waiters()) {
    Waiting& waiting = *sequence->waiting;
    if (waiting.purpose != Purpose::kRequest) {
      continue;
    }
    ++requests;
    waiting.without_tier = true;
    Plan(*sequence, waiting.resume_point);
  }
  counters_.given_up += requests;
  if (requests > 0) {
    parts_.logger->warn(
        "the disk does not answer: {} requests go on without what they wait "
        "for "
        "from it",
        requests);
  }
}

void Taking::Finish(SequenceState& sequence) {
  Waiting& waiting = *sequence.waiting;
  Reuse& reuse = sequence.reuse;
  for (const Waiting::Span& span : waiting.spans) {
    const uint32_t tokens =
        TokensBefore(waiting.resume_point, span, tree_.block_tokens());
    (span.from_tier ? reuse.tier : reuse.ram) += tokens;
  }
  reuse.cached = reuse.ram + reuse.tier;
  Count(waiting, reuse);
  TouchPath(waiting);
  UnpinSources(waiting);
  sequence.waiting.reset();
}

void Taking::Count(const Waiting& waiting, const Reuse& reuse) {
  if (waiting.purpose == Purpose::kPreload) {
    counters_.preloaded_tokens += reuse.tier;
    return;
  }
  counters_.hits += reuse.cached > 0 ? 1 : 0;
  counters_.tokens_from_ram += reuse.ram;
  counters_.tokens_from_tier += reuse.tier;
}

void Taking::TouchPath(const Waiting& waiting) {
  std::vector<BlockKey> keys;
  const auto touch = [&](const Waiting::Source& source) {
    Residency& residency = *source.residency;
    if (source.held == 0) {
      return;
    }
    retention_.Touch(residency);
    if (residency.tier_tokens > 0) {
      keys.push_back(
          tree_.Key(residency.node, residency.group, residency.tier_tokens));
    }
  };
  for (size_t s = waiting.spans.size(); s-- > 0;) {
    std::for_each(waiting.spans[s].states.begin(),
                  waiting.spans[s].states.end(), touch);
    std::for_each(waiting.spans[s].sources.begin(),
                  waiting.spans[s].sources.end(), touch);
  }
  if (!keys.empty() && waiting.purpose == Purpose::kRequest) {
    parts_.tier->Touch(keys);
  }
}

void Taking::UnpinSources(Waiting& waiting) {
  // The leaf first: a parent goes only after its children.
  for (size_t s = waiting.spans.size(); s-- > 0;) {
    for (const Waiting::Source& state : waiting.spans[s].states) {
      --state.residency->plans;
      tree_.Prune(state.residency->node);
    }
    for (const Waiting::Source& source : waiting.spans[s].sources) {
      tree_.Unpin(source.residency->node);
    }
  }
  waiting.spans.clear();
}

void Taking::Abandon(SequenceState& sequence) {
  if (sequence.waiting == nullptr) {
    return;
  }
  LeaveLoads(sequence);
  UnpinSources(*sequence.waiting);
  sequence.waiting.reset();
  sequence.tokens.clear();
}

}  // namespace everwarm::cache
