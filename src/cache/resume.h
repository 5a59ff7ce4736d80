// From which positions all layer groups of a model can go on.
//
// Pure: no blocks, no tree, no tier; only how many tokens of each span every
// group has.
#ifndef EVERWARM_CACHE_RESUME_H_
#define EVERWARM_CACHE_RESUME_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/layer_group.h"

namespace everwarm::cache {

// Where kRecurrent groups have a state.
class StatePositions {
 public:
  virtual ~StatePositions() = default;
  // The greatest position in [first, last] with a state of the group. All three
  // are behind tokens of the span that is being added to a scan.
  virtual std::optional<TokenPos> LastIn(GroupIndex group, TokenPos first,
                                         TokenPos last) const = 0;
};

// None anywhere.
class NoStates final : public StatePositions {
 public:
  std::optional<TokenPos> LastIn(GroupIndex, TokenPos,
                                 TokenPos) const override {
    return std::nullopt;
  }
};

// Those of one span after the other.
class SpanStates final : public StatePositions {
 public:
  void Clear() { states_.clear(); }
  void Add(GroupIndex group, TokenPos position) {
    states_.push_back({group, position});
  }
  std::optional<TokenPos> LastIn(GroupIndex group, TokenPos first,
                                 TokenPos last) const override;

 private:
  struct State {
    GroupIndex group = 0;
    TokenPos position = 0;
  };
  std::vector<State> states_;
};

// Walks along one path, span by span, and remembers the greatest resume point p
// so far: kFull and kLatent groups have all of [0, p), kWindow(W) groups have
// what exists of [p - W + 1, p - 1], kRecurrent groups have a state exactly at
// p. Position 0 is always one.
//
// Threads: a value; copy it to go on along two paths.
class ResumeScan {
 public:
  // Both outlive the scan.
  ResumeScan(const CacheLayout& layout, const StatePositions& states);

  // The next span: the first `tokens` of its positions belong to the path, and
  // covered[group] of these, from its start, are there. Less than a whole span
  // ends the path.
  void Add(uint32_t tokens, absl::Span<const uint32_t> covered);

  TokenPos resume_point() const { return resume_point_; }

 private:
  // The greatest resume point in [first, last] that has a state in every
  // kRecurrent group.
  std::optional<TokenPos> LastWithStates(TokenPos first, TokenPos last) const;

  const CacheLayout* layout_;
  const StatePositions* states_;
  TokenPos end_ = 0;
  TokenPos resume_point_ = 0;
  // Per group: how many positions right before end_ are there.
  absl::InlinedVector<TokenPos, 4> runs_;
};

// The first and one past the last span whose blocks of this group are needed to
// go on at `resume_point`.
std::pair<uint32_t, uint32_t> NeededSpans(const LayerGroup& group,
                                          uint32_t block_tokens,
                                          TokenPos resume_point);

// How many blocks a sequence keeps before the one that fills: just enough to go
// on from everywhere in that one and from the last position before it. Less
// than the window and one span, so that two published positions on both sides
// of a block's border hold no more than the window and two spans together.
// Requires: a kWindow group.
uint32_t BlocksBehind(const LayerGroup& group, uint32_t block_tokens);

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_RESUME_H_
