#include "cache/resume.h"

#include <algorithm>

namespace everwarm::cache {
namespace {

// Positions before p, not counting p itself, that the group must have at p.
TokenPos Reach(const LayerGroup& group, TokenPos p) {
  switch (group.kind) {
    case GroupKind::kFull:
    case GroupKind::kLatent:
      return p;
    case GroupKind::kWindow:
      return std::min(p, group.window > 0 ? group.window - 1 : 0);
    case GroupKind::kRecurrent:
      return 0;
  }
  return p;
}

}  // namespace

std::optional<TokenPos> SpanStates::LastIn(GroupIndex group, TokenPos first,
                                           TokenPos last) const {
  std::optional<TokenPos> greatest;
  for (const State& state : states_) {
    if (state.group == group && state.position >= first &&
        state.position <= last) {
      greatest = std::max(greatest.value_or(0), state.position);
    }
  }
  return greatest;
}

ResumeScan::ResumeScan(const CacheLayout& layout, const StatePositions& states)
    : layout_(&layout), states_(&states), runs_(layout.groups.size(), 0) {}

void ResumeScan::Add(uint32_t tokens, absl::Span<const uint32_t> covered) {
  const TokenPos start = end_;
  // Bounds of the offsets in this span at which all groups but the recurrent
  // ones can go on. Whoever has a position's reach has the next one's too, as
  // far as it is covered: the offsets are one range.
  uint32_t first = 1;
  uint32_t last = tokens;
  for (size_t g = 0; g < runs_.size(); ++g) {
    const LayerGroup& group = layout_->groups[g];
    if (group.kind == GroupKind::kRecurrent || Reach(group, 1) == 0) {
      continue;
    }
    const uint32_t here = std::min(covered[g], tokens);
    last = std::min(last, here);
    while (first <= last && runs_[g] + first < Reach(group, start + first)) {
      ++first;
    }
    runs_[g] = here == tokens ? runs_[g] + tokens : 0;
  }
  end_ = start + tokens;
  if (first <= last) {
    resume_point_ =
        LastWithStates(start + first, start + last).value_or(resume_point_);
  }
}

std::optional<TokenPos> ResumeScan::LastWithStates(TokenPos first,
                                                   TokenPos last) const {
  TokenPos candidate = last;
  for (size_t g = 0; g < runs_.size();) {
    if (layout_->groups[g].kind == GroupKind::kRecurrent) {
      const std::optional<TokenPos> state =
          states_->LastIn(static_cast<GroupIndex>(g), first, candidate);
      if (!state.has_value()) {
        return std::nullopt;
      }
      if (*state < candidate) {
        candidate = *state;
        g = 0;
        continue;
      }
    }
    ++g;
  }
  return candidate;
}

std::pair<uint32_t, uint32_t> NeededSpans(const LayerGroup& group,
                                          uint32_t block_tokens,
                                          TokenPos resume_point) {
  const TokenPos reach = Reach(group, resume_point);
  if (reach == 0) {
    return {0, 0};
  }
  return {(resume_point - reach) / block_tokens,
          (resume_point - 1) / block_tokens + 1};
}

uint32_t BlocksBehind(const LayerGroup& group, uint32_t block_tokens) {
  return (group.window + block_tokens - 1) / block_tokens;
}

}  // namespace everwarm::cache
