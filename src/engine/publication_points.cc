#include "engine/publication_points.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

namespace everwarm::engine {
namespace {

using cache::GroupKind;
using cache::StateUse;

// Blocks a long reply fills between two publications.
constexpr TokenPos kBlocksPerPublication = 4;
// A place that saves fewer tokens is worth neither a state nor a step that ends
// there.
constexpr TokenPos kLeastGain = 16;

bool FarFrom(TokenPos position, TokenPos other) {
  return position >= other + kLeastGain || other >= position + kLeastGain;
}

}  // namespace

bool MayBeStateEvery(TokenPos tokens) {
  return tokens == 0 ||
         (tokens >= kLeastStateEvery && std::has_single_bit(tokens));
}

PublicationPoints::PublicationPoints(const cache::CacheLayout& layout,
                                     TokenPos state_every)
    : block_tokens_(layout.block_tokens) {
  for (const cache::LayerGroup& group : layout.groups) {
    states_ = states_ || group.kind == GroupKind::kRecurrent;
    anywhere_ = anywhere_ && (group.kind == GroupKind::kFull ||
                              group.kind == GroupKind::kLatent);
  }
  state_every_ = states_ ? state_every : 0;
}

TokenPos PublicationPoints::Boundary(const Prompt& prompt) const {
  if (prompt.boundary > 0 || !states_) {
    return prompt.boundary;
  }
  const TokenPos last = prompt.length - 1;
  return last >= prompt.cached + kLeastGain ? last : 0;
}

TokenPos PublicationPoints::Departure(const Prompt& prompt) const {
  const bool worth = !anywhere_ && prompt.matched < prompt.length &&
                     prompt.matched >= prompt.cached + kLeastGain &&
                     FarFrom(prompt.matched, Boundary(prompt));
  return worth ? prompt.matched : 0;
}

std::optional<TokenPos> PublicationPoints::Next(const Prompt& prompt,
                                                TokenPos length) const {
  std::optional<TokenPos> next;
  const auto consider = [&](TokenPos point) {
    if (point > length) {
      next = std::min(next.value_or(point), point);
    }
  };
  consider(Boundary(prompt));
  consider(Departure(prompt));
  if (state_every_ > 0) {
    consider((length / state_every_ + 1) * state_every_);
  }
  return next;
}

std::optional<StateUse> PublicationPoints::At(const Prompt& prompt,
                                              TokenPos length,
                                              Stage stage) const {
  if (stage != Stage::kReply &&
      (length == Boundary(prompt) || length == Departure(prompt))) {
    return FarFrom(length, prompt.cached) ? StateUse::kKept : StateUse::kNone;
  }
  if (state_every_ > 0 && length % state_every_ == 0) {
    return StateUse::kPassing;
  }
  const TokenPos every = stage == Stage::kReply
                             ? block_tokens_ * kBlocksPerPublication
                             : block_tokens_;
  if (stage == Stage::kPromptDone || (anywhere_ && length % every == 0)) {
    return StateUse::kNone;
  }
  return std::nullopt;
}

}  // namespace everwarm::engine
