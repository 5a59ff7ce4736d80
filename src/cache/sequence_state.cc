#include "cache/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/resume.h"
#include "cache/taking.h"

namespace everwarm::cache {

SequenceState::SequenceState(const CacheLayout& cache_layout,
                             SequenceOwner* sequence_owner)
    : layout(cache_layout),
      owner(sequence_owner),
      tables(cache_layout.groups.size()) {
  for (size_t g = 0; g < tables.size(); ++g) {
    if (layout.groups[g].kind == GroupKind::kRecurrent) {
      tables[g].Resize(1);
    }
  }
}

SequenceState::~SequenceState() {
  if (claimed_ > 0) {
    SetFilled(static_cast<TokenPos>(tokens.size()));
  }
  if (owner != nullptr) {
    owner->Closed(*this);
  }
}

bool SequenceState::MayExtend(const BlockRef& tail, uint32_t own_tokens) const {
  // Whoever else has the block may read what it knows of it, and nobody knows
  // of anything behind the filled end. A claim of this sequence's own is no
  // obstacle: nobody can have taken tokens that were not appended.
  const TokenPos start = static_cast<TokenPos>(tokens.size()) /
                         layout.block_tokens * layout.block_tokens;
  const uint32_t own_claim =
      claimed_ > 0 ? std::min(claimed_ - start, layout.block_tokens)
                   : own_tokens;
  return tail->filled() == own_tokens || tail->filled() == own_claim;
}

std::vector<SequenceState::Need> SequenceState::Needs(TokenPos count) const {
  std::vector<Need> needs;
  const TokenPos length = static_cast<TokenPos>(tokens.size());
  const uint32_t first = length / layout.block_tokens;
  const uint32_t end =
      count == 0 ? first : (length + count - 1) / layout.block_tokens + 1;
  for (GroupIndex g = 0; g < tables.size(); ++g) {
    if (layout.groups[g].kind == GroupKind::kRecurrent) {
      const BlockRef& state = tables[g][0];
      if (count > 0 && (!state || state->filled() > 0)) {
        needs.push_back({g, 0, state ? state->filled() : 0});
      }
      continue;
    }
    for (uint32_t span = first; span < end; ++span) {
      if (span >= tables[g].size() || !tables[g][span]) {
        needs.push_back({g, span, 0});
      } else if (span == first && tail_tokens() > 0 &&
                 !MayExtend(tables[g][span], tail_tokens())) {
        needs.push_back({g, span, tail_tokens()});
      }
    }
  }
  return needs;
}

void SequenceState::Apply(absl::Span<const Need> needs,
                          std::vector<BlockRef> slots, TokenPos count) {
  const TokenPos length = static_cast<TokenPos>(tokens.size());
  if (claimed_ > 0) {
    SetFilled(length);
  }
  retired.clear();
  const size_t spans =
      (length + count + layout.block_tokens - 1) / layout.block_tokens;
  for (size_t g = 0; g < tables.size(); ++g) {
    if (layout.groups[g].kind != GroupKind::kRecurrent &&
        tables[g].size() < spans) {
      tables[g].Resize(spans);
    }
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    const Need& need = needs[i];
    BlockTable& table = tables[need.group];
    const BlockGeometry& geometry = slots[i]->geometry();
    if (need.copy_tokens > 0) {
      geometry.CopyTokens(table[need.span]->data(), need.copy_tokens,
                          slots[i]->data());
    } else if (geometry.is_state()) {
      std::memset(slots[i]->data(), 0, geometry.PayloadBytes(1));
    }
    table.Set(need.span, std::move(slots[i]));
  }
  claimed_ = 0;
  if (count > 0) {
    claimed_ = length + count;
    SetFilled(claimed_);
  }
}

void SequenceState::SetFilled(TokenPos end) {
  const TokenPos length = static_cast<TokenPos>(tokens.size());
  const TokenPos last = std::max(end, claimed_);
  for (uint32_t span = length / layout.block_tokens;
       span * layout.block_tokens < last; ++span) {
    const TokenPos start = span * layout.block_tokens;
    for (size_t g = 0; g < tables.size(); ++g) {
      const BlockTable& table = tables[g];
      if (layout.groups[g].kind != GroupKind::kRecurrent &&
          span < table.size() && table[span]) {
        table[span]->set_filled(
            end > start ? std::min(end - start, layout.block_tokens) : 0);
      }
    }
  }
}

void SequenceState::ReleaseUnseen() {
  const TokenPos length = static_cast<TokenPos>(tokens.size());
  for (size_t g = 0; g < tables.size(); ++g) {
    if (layout.groups[g].kind != GroupKind::kWindow) {
      continue;
    }
    const uint32_t kept = BlocksBehind(layout.groups[g], layout.block_tokens);
    BlockTable& table = tables[g];
    while (table.released + kept < length / layout.block_tokens) {
      table.Set(table.released++, BlockRef());
    }
  }
}

void SequenceState::Append(absl::Span<const TokenId> more) {
  const TokenPos before = static_cast<TokenPos>(tokens.size());
  const TokenPos length = before + static_cast<TokenPos>(more.size());
  if (claimed_ > 0) {
    SetFilled(length);
    claimed_ = 0;
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  ReleaseUnseen();
}

}  // namespace everwarm::cache
