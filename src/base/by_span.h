// What holds for the blocks of one layer group, by their place: those of the
// first spans of every sequence may be kept otherwise than the rest, and which
// of them a block is follows from its span's index alone.
#ifndef EVERWARM_BASE_BY_SPAN_H_
#define EVERWARM_BASE_BY_SPAN_H_

#include <cstdint>
#include <utility>

namespace everwarm {

// Threads: as T.
template <typename T>
struct BySpan {
  BySpan() = default;
  // The same for all spans.
  BySpan(T all)  // NOLINT(google-explicit-constructor): the usual case
      : rest(std::move(all)) {}
  BySpan(uint32_t spans, T of_first, T of_rest)
      : rest(std::move(of_rest)),
        first(std::move(of_first)),
        first_spans(spans) {}

  const T& At(uint32_t span) const { return span < first_spans ? first : rest; }
  // Of the span that begins at this position.
  const T& AtStart(uint64_t start, uint32_t block_tokens) const {
    return start < uint64_t{first_spans} * block_tokens ? first : rest;
  }

  friend bool operator==(const BySpan&, const BySpan&) = default;

  T rest;
  // Of spans [0, first_spans); unused where there are none.
  T first;
  uint32_t first_spans = 0;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_BY_SPAN_H_
