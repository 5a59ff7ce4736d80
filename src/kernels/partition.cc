#include "kernels/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/f16.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/partition.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

// What query rows see of one tile, as offsets in it; end <= begin: nothing.
struct TileSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
};

TileSpan SpanInTile(const VisibleSpan& span, TokenPos tile) {
  const TokenPos begin = std::max(span.begin, tile);
  const TokenPos end = std::min(span.end, tile + kTileTokens);
  if (end <= begin) return {};
  return {begin - tile, end - tile};
}

// Everything about one tile of one call.
struct Tile {
  const PartitionArgs& args;
  const PartitionScratch& scratch;
  const PartitionSums& sums;
  TokenPos begin;
  // Query rows that see something of it, and what their union is.
  uint32_t first_row;
  uint32_t last_row;
  TileSpan seen;

  TileSpan Span(uint32_t row) const {
    return SpanInTile(args.spans[row / args.heads], begin);
  }
  // Union over rows [row, row + count): spans ascend.
  TileSpan Union(uint32_t row, uint32_t count) const {
    return {Span(row).begin, Span(row + count - 1).end};
  }
};

void TokenRows(const Tile& tile, size_t head_offset, uint32_t dim,
               const uint16_t** rows) {
  const PartitionArgs& args = tile.args;
  // Tokens outside the union stand for the nearest one inside: their scores are
  // never used, and their own bytes may be anything or not there.
  const TokenPos first = tile.begin + tile.seen.begin;
  const TokenPos last = tile.begin + tile.seen.end - 1;
  for (uint32_t t = 0; t < kTileTokens; ++t) {
    const TokenPos pos = std::clamp(tile.begin + t, first, last);
    const std::byte* head = args.blocks[pos / args.block_tokens] + head_offset;
    rows[t] = reinterpret_cast<const uint16_t*>(head) +
              size_t{pos % args.block_tokens} * dim;
  }
}

template <int kRows>
void ScoreRows(const Tile& tile, uint32_t panel, uint32_t row) {
  const uint32_t k_dim = tile.args.k_dim;
  ScoreBlock<kRows>(tile.args.query + size_t{row} * k_dim, k_dim,
                    tile.scratch.keys + size_t{panel} * k_dim * kPanel,
                    tile.scratch.scores + row * kTileTokens + panel * kPanel);
}

template <int kRows>
void AddRows(const Tile& tile, uint32_t panel, uint32_t row) {
  const uint32_t stride = ValueStride(tile.args.v_dim);
  const TileSpan span = tile.Union(row, kRows);
  ValueBlock<kRows>(
      tile.scratch.scores + row * kTileTokens, span.begin, span.end,
      tile.scratch.values + size_t{panel} * kTileTokens * kPanel,
      tile.scratch.shrink + row,
      tile.sums.value + size_t{row} * stride + panel * kPanel, stride);
}

// Calls the kernel for exactly `count` rows, 1 <= count <= kRows.
template <int kRows>
void ScoreRemainder(const Tile& tile, uint32_t panel, uint32_t row,
                    uint32_t count) {
  if (count == kRows) return ScoreRows<kRows>(tile, panel, row);
  if constexpr (kRows > 1) ScoreRemainder<kRows - 1>(tile, panel, row, count);
}

template <int kRows>
void AddRemainder(const Tile& tile, uint32_t panel, uint32_t row,
                  uint32_t count) {
  if (count == kRows) return AddRows<kRows>(tile, panel, row);
  if constexpr (kRows > 1) AddRemainder<kRows - 1>(tile, panel, row, count);
}

void Scores(const Tile& tile) {
  const uint32_t last_panel = (tile.seen.end + kPanel - 1) / kPanel;
  for (uint32_t p = tile.seen.begin / kPanel; p < last_panel; ++p) {
    for (uint32_t row = tile.first_row; row < tile.last_row;
         row += kBlockRows) {
      const uint32_t count =
          std::min<uint32_t>(kBlockRows, tile.last_row - row);
      const TileSpan span = tile.Union(row, count);
      if (span.end <= p * kPanel || span.begin >= (p + 1) * kPanel) continue;
      ScoreRemainder<kBlockRows>(tile, p, row, count);
    }
  }
}

void Weights(const Tile& tile) {
  for (uint32_t row = tile.first_row; row < tile.last_row; row += kBlockRows) {
    const uint32_t count = std::min<uint32_t>(kBlockRows, tile.last_row - row);
    const TileSpan all = tile.Union(row, count);
    for (uint32_t r = row; r < row + count; ++r) {
      const TileSpan span = tile.Span(r);
      float* scores = tile.scratch.scores + r * kTileTokens;
      tile.scratch.shrink[r] =
          SoftmaxRow(span.begin, span.end, tile.args.score_cap, scores,
                     tile.sums.max[r], tile.scratch.lanes + r * kSumLanes);
      // Values are added for the union of the block's rows. A weight of 0 adds
      // nothing: the sign of a zero sum is settled at the partition's end.
      std::fill(scores + all.begin, scores + std::max(all.begin, span.begin),
                0.0f);
      std::fill(scores + span.end, scores + std::max(all.end, span.end), 0.0f);
    }
  }
}

// `exact`: some value of the tile is not finite, and 0 times it is not 0; each
// row must meet its own tokens alone.
void Values(const Tile& tile, bool exact) {
  const uint32_t step = exact ? 1 : kBlockRows;
  const uint32_t panels = ValueStride(tile.args.v_dim) / kPanel;
  for (uint32_t p = 0; p < panels; ++p) {
    for (uint32_t row = tile.first_row; row < tile.last_row; row += step) {
      const uint32_t count = std::min<uint32_t>(step, tile.last_row - row);
      AddRemainder<kBlockRows>(tile, p, row, count);
    }
  }
}

void AccumulateTile(const PartitionArgs& args, const PartitionScratch& scratch,
                    const PartitionSums& sums, TokenPos begin) {
  uint32_t first = 0;
  uint32_t last = args.num_spans;
  while (first < last && SpanInTile(args.spans[first], begin).end == 0) ++first;
  while (first < last && SpanInTile(args.spans[last - 1], begin).end == 0) {
    --last;
  }
  if (first == last) return;
  const TileSpan seen = {SpanInTile(args.spans[first], begin).begin,
                         SpanInTile(args.spans[last - 1], begin).end};
  const Tile tile{
      args, scratch, sums, begin, first * args.heads, last * args.heads, seen};
  const uint16_t* rows[kTileTokens];
  TokenRows(tile, args.k_offset, args.k_dim, rows);
  ConvertKeys(rows, args.k_dim, seen.begin / kPanel,
              (seen.end + kPanel - 1) / kPanel, scratch.keys);
  Scores(tile);
  Weights(tile);
  TokenRows(tile, args.v_offset, args.v_dim, rows);
  const bool finite =
      ConvertValues(rows, args.v_dim, seen.begin, seen.end, scratch.values);
  Values(tile, !finite);
}

void AccumulatePartition(const PartitionArgs& args,
                         const PartitionScratch& scratch,
                         const PartitionSums& sums) {
  const uint32_t rows = args.num_spans * args.heads;
  const size_t values = size_t{rows} * ValueStride(args.v_dim);
  std::fill_n(sums.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.lanes, size_t{rows} * kSumLanes, 0.0f);
  std::fill_n(sums.value, values, 0.0f);
  for (uint32_t t = 0; t < kPartitionTokens; t += kTileTokens) {
    AccumulateTile(args, scratch, sums, args.begin + t);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    sums.sum[r] = SumLanes(scratch.lanes + r * kSumLanes);
  }
  SettleZeros(sums.value, values);
}

void FoldPartition(bool first, const RowSums& part, const float* part_value,
                   uint32_t stride, RowSums& row, float* value) {
  const DF d;
  if (first) {
    row = part;
    std::copy_n(part_value, stride, value);
    return;
  }
  const float max = std::max(row.max, part.max);
  const auto a = Exp2(d, hn::Set(d, row.max - max));
  const auto b = Exp2(d, hn::Set(d, part.max - max));
  row.max = max;
  row.sum = hn::GetLane(
      hn::MulAdd(hn::Set(d, part.sum), b, hn::Mul(hn::Set(d, row.sum), a)));
  for (uint32_t i = 0; i < stride; i += hn::Lanes(d)) {
    const auto old = hn::Mul(hn::Load(d, value + i), a);
    hn::Store(hn::MulAdd(hn::Load(d, part_value + i), b, old), d, value + i);
  }
}

void FinishRow(const RowSums& row, const float* value, uint32_t v_dim,
               float* out) {
  const float inverse = 1.0f / row.sum;
  for (uint32_t i = 0; i < v_dim; ++i) out[i] = value[i] * inverse;
}

void ScaleQuery(const float* query, float factor, uint32_t k_dim,
                float* scaled) {
  for (uint32_t i = 0; i < k_dim; ++i) scaled[i] = query[i] * factor;
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everwarm::kernels {
namespace {
HWY_EXPORT(AccumulatePartition);
HWY_EXPORT(FoldPartition);
HWY_EXPORT(FinishRow);
HWY_EXPORT(ScaleQuery);
HWY_EXPORT(Target);
}  // namespace

void AccumulatePartition(const PartitionArgs& args,
                         const PartitionScratch& scratch,
                         const PartitionSums& sums) {
  HWY_DYNAMIC_DISPATCH(AccumulatePartition)(args, scratch, sums);
}

void FoldPartition(bool first, const RowSums& part, const float* part_value,
                   uint32_t stride, RowSums& row, float* value) {
  HWY_DYNAMIC_DISPATCH(FoldPartition)
  (first, part, part_value, stride, row, value);
}

void FinishRow(const RowSums& row, const float* value, uint32_t v_dim,
               float* out) {
  HWY_DYNAMIC_DISPATCH(FinishRow)(row, value, v_dim, out);
}

void ScaleQuery(const float* query, float factor, uint32_t k_dim,
                float* scaled) {
  HWY_DYNAMIC_DISPATCH(ScaleQuery)(query, factor, k_dim, scaled);
}

const char* KernelTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
