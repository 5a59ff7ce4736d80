#include "cache/taking.h"

#include <algorithm>
#include <utility>

namespace everwarm::cache {
namespace {

// Tokens of the span that lie before the resume point.
uint32_t TokensBefore(TokenPos resume_point, const Node& node,
                      uint32_t block_tokens) {
  return resume_point > node.start
             ? std::min(resume_point - node.start, block_tokens)
             : 0;
}

}  // namespace

void Taking::Begin(SequenceState& sequence, absl::Span<const TokenId> prompt) {
  ++counters_.takes;
  counters_.tokens_asked += prompt.size();
  sequence.waiting = std::make_unique<Waiting>();
  Waiting& waiting = *sequence.waiting;
  waiting.prompt.assign(prompt.begin(), prompt.end());
  Walk(waiting, sequence.root, &sequence.reuse.matched);
  for (BlockTable& table : sequence.tables) {
    table.Resize(waiting.spans.size());
  }
  for (const Waiting::Span& span : waiting.spans) {
    tree_.Pin(span.node);
  }
  // Something has to be left to compute.
  Plan(sequence, static_cast<TokenPos>(prompt.size() - 1));
}

void Taking::Walk(Waiting& waiting, const NodeId& root, TokenPos* matched) {
  const uint32_t block_tokens = tree_.block_tokens();
  const Node* parent = tree_.FindRoot(root);
  absl::Span<const TokenId> rest = waiting.prompt;
  while (parent != nullptr && !rest.empty()) {
    Waiting::Span span;
    if (rest.size() >= block_tokens) {
      span.node = tree_.Find(parent, rest.first(block_tokens));
      span.matched = block_tokens;
    }
    if (span.node == nullptr) {
      span = BestPartial(parent, rest);
    }
    if (span.node == nullptr) {
      return;
    }
    span.held.assign(parts_.layout.groups.size(), 0);
    *matched += span.matched;
    rest.remove_prefix(span.matched);
    parent = span.matched == block_tokens ? span.node : nullptr;
    waiting.spans.push_back(std::move(span));
  }
}

Waiting::Span Taking::BestPartial(const Node* parent,
                                  absl::Span<const TokenId> rest) const {
  const TokenTree::Partial partial = tree_.FindPartial(
      parent, rest.first(std::min<size_t>(rest.size(), tree_.block_tokens())));
  Waiting::Span best;
  // Of those that agree with the prompt equally far, the one whose worst group
  // has the most, then the one with the most in RAM.
  std::pair<uint32_t, uint32_t> best_score;
  for (Node* node : partial.nodes) {
    std::pair<uint32_t, uint32_t> score = {partial.common, 0};
    for (const Residency& residency : node->groups) {
      score.first = std::min(
          score.first, std::max(residency.ram_tokens, residency.tier_tokens));
      score.second += std::min(residency.ram_tokens, partial.common);
    }
    if (best.node == nullptr || score > best_score) {
      best.node = node;
      best.matched = partial.common;
      best_score = score;
    }
  }
  return best;
}

uint32_t Taking::Covered(const Waiting& waiting, const Waiting::Span& span,
                         GroupIndex group) const {
  const Residency& residency = span.node->groups[group];
  uint32_t covered = std::max(span.held[group], residency.ram_tokens);
  if (!waiting.unreadable.contains(&residency)) {
    covered =
        std::max({covered, residency.tier_tokens, residency.loading_tokens});
  }
  return std::min(covered, span.matched);
}

TokenPos Taking::ResumePoint(const Waiting& waiting, TokenPos limit) const {
  ResumeScan scan(parts_.layout, states_);
  std::vector<uint32_t> covered(parts_.layout.groups.size());
  for (const Waiting::Span& span : waiting.spans) {
    if (span.node->start >= limit) {
      break;
    }
    for (GroupIndex g = 0; g < covered.size(); ++g) {
      covered[g] = Covered(waiting, span, g);
    }
    scan.Add(std::min(span.matched, limit - span.node->start), covered);
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

std::vector<Load::Waiter> Taking::Lend(SequenceState& sequence,
                                       std::vector<Residency*>* to_read) {
  Waiting& waiting = *sequence.waiting;
  const uint32_t block_tokens = tree_.block_tokens();
  std::vector<Load::Waiter> waiters;
  std::vector<std::pair<uint32_t, uint32_t>> needed;
  for (const LayerGroup& group : parts_.layout.groups) {
    needed.push_back(NeededSpans(group, block_tokens, waiting.resume_point));
  }
  for (uint32_t s = 0; s < waiting.spans.size(); ++s) {
    Waiting::Span& span = waiting.spans[s];
    const uint32_t need =
        TokensBefore(waiting.resume_point, *span.node, block_tokens);
    for (GroupIndex g = 0; g < needed.size(); ++g) {
      Residency& residency = span.node->groups[g];
      BlockTable& table = sequence.tables[g];
      if (s < needed[g].first || s >= needed[g].second) {
        table.Set(s, BlockRef());
        span.held[g] = 0;
      } else if (span.held[g] >= need) {
        continue;
      } else if (residency.ram_tokens >= need) {
        table.Set(s, residency.ram);
        span.held[g] = std::min(residency.ram_tokens, span.matched);
      } else {
        to_read->push_back(&residency);
        waiters.push_back({&sequence, s});
      }
    }
  }
  return waiters;
}

bool Taking::Read(SequenceState& sequence) {
  Waiting& waiting = *sequence.waiting;
  std::vector<Residency*> to_read;
  const std::vector<Load::Waiter> waiters = Lend(sequence, &to_read);
  size_t bytes = 0;
  for (const Residency* residency : to_read) {
    bytes += parts_.pool->geometry(residency->group).slot_bytes();
  }
  retention_.MakeRoom(bytes);
  for (size_t i = 0; i < to_read.size(); ++i) {
    Residency& residency = *to_read[i];
    const uint32_t need = TokensBefore(waiting.resume_point, *residency.node,
                                       tree_.block_tokens());
    absl::StatusOr<Load*> load = loads_.Join(residency, need, waiters[i]);
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
    waiter.sequence->tables[residency.group].Set(waiter.span, block);
    span.held[residency.group] = std::min(load->tokens, span.matched);
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
  parts_.logger->warn(
      "a stored block of group {} at position {} was not read, {} sequences "
      "resume earlier: {}",
      residency.group, residency.node->start, load->waiters.size(),
      status.ToString());
  tree_.Pin(residency.node);
  for (const Load::Waiter& waiter : load->waiters) {
    std::erase(waiter.sequence->waiting->loads, load.get());
    Plan(*waiter.sequence, waiter.sequence->waiting->resume_point);
  }
  tree_.Unpin(residency.node);
}

void Taking::Finish(SequenceState& sequence) {
  Waiting& waiting = *sequence.waiting;
  Reuse& reuse = sequence.reuse;
  for (const Waiting::Span& span : waiting.spans) {
    const uint32_t tokens =
        TokensBefore(waiting.resume_point, *span.node, tree_.block_tokens());
    (span.from_tier ? reuse.tier : reuse.ram) += tokens;
  }
  reuse.cached = reuse.ram + reuse.tier;
  counters_.hits += reuse.cached > 0 ? 1 : 0;
  counters_.tokens_from_ram += reuse.ram;
  counters_.tokens_from_tier += reuse.tier;
  TouchPath(sequence);
  UnpinPath(waiting);
  sequence.waiting.reset();
}

void Taking::TouchPath(const SequenceState& sequence) {
  const Waiting& waiting = *sequence.waiting;
  std::vector<BlockKey> keys;
  for (size_t s = waiting.spans.size(); s-- > 0;) {
    Node* const node = waiting.spans[s].node;
    for (Residency& residency : node->groups) {
      if (!sequence.tables[residency.group][s]) {
        continue;
      }
      retention_.Touch(residency);
      if (residency.tier_tokens > 0) {
        keys.push_back(tree_.Key(node, residency.group, residency.tier_tokens));
      }
    }
  }
  if (!keys.empty()) {
    parts_.tier->Touch(keys);
  }
}

void Taking::UnpinPath(Waiting& waiting) {
  // The leaf first: a parent goes only after its children.
  for (size_t s = waiting.spans.size(); s-- > 0;) {
    tree_.Unpin(waiting.spans[s].node);
  }
  waiting.spans.clear();
}

void Taking::Abandon(SequenceState& sequence) {
  if (sequence.waiting == nullptr) {
    return;
  }
  LeaveLoads(sequence);
  UnpinPath(*sequence.waiting);
  sequence.waiting.reset();
  sequence.tokens.clear();
}

}  // namespace everwarm::cache
