#include "kernels/partition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/partition.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/fused-inl.h"
#include "kernels/fused_packed-inl.h"
#include "kernels/half-inl.h"
#include "kernels/packed-inl.h"
#include "kernels/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

TileSpan SpanInTile(const VisibleSpan& span, TokenPos tile) {
  const TokenPos begin = std::max(span.begin, tile);
  const TokenPos end = std::min(span.end, tile + kTileTokens);
  if (end <= begin) return {};
  return {begin - tile, end - tile};
}

// Bytes of the numbers of one token in one head.
size_t KeyBytes(const PartitionArgs& args) {
  return args.k_codec.IndexBytes(args.k_dim);
}
size_t ValueBytes(const PartitionArgs& args) {
  return args.v_codec.IndexBytes(args.stored_v_dim);
}

// Everything about one tile of one call.
struct Tile {
  const PartitionArgs& args;
  const PartitionScratch& scratch;
  const PartitionSums& sums;
  TokenPos begin;
  const TileRows& rows;
  // The tile that is read next, or null.
  const TileRows* next;
  // Query rows that see something of it, and what their union is.
  uint32_t first_row;
  uint32_t last_row;
  TileSpan seen;

  const TileSpan& Span(uint32_t row) const { return scratch.seen[row]; }
  // Union over rows [row, row + count): spans ascend.
  TileSpan Union(uint32_t row, uint32_t count) const {
    return {Span(row).begin, Span(row + count - 1).end};
  }
};

// The first `dim` of `stored_dim` elements of every token.
PackedPlane PlaneOf(const PlaneCodec& codec, const uint16_t* const* indices,
                    const uint16_t* const* params, uint32_t dim,
                    uint32_t stored_dim) {
  return {codec,
          indices,
          params,
          dim,
          codec.IndexBytes(stored_dim),
          codec.ParamBytes(stored_dim) / sizeof(uint16_t)};
}
PackedPlane KeyPlane(const Tile& tile) {
  return PlaneOf(tile.args.k_codec, tile.rows.keys, tile.rows.key_params,
                 tile.args.k_dim, tile.args.k_dim);
}
PackedPlane ValuePlane(const Tile& tile) {
  return PlaneOf(tile.args.v_codec, tile.rows.values, tile.rows.value_params,
                 tile.args.v_dim, tile.args.stored_v_dim);
}

// Finds the panels in which some span sees something, and asks for their
// parameters; false if there is none.
bool FindRows(const PartitionArgs& args, TokenPos tile, TileRows& rows) {
  const TokenPos begin = std::max(tile, args.spans[0].begin);
  const TokenPos end =
      std::min(tile + kTileTokens, args.spans[args.num_spans - 1].end);
  if (begin >= end) return false;
  rows = {};
  const int block_shift = std::countr_zero(args.block_tokens);
  for (TokenPos pos = begin / kPanel * kPanel; pos < end; pos += kPanel) {
    const std::byte* slot = args.blocks[pos >> block_shift];
    const size_t token = pos & (args.block_tokens - 1);
    const uint32_t panel = (pos - tile) / kPanel;
    const auto at = [&](size_t plane, size_t token_bytes) {
      return reinterpret_cast<const uint16_t*>(slot + plane +
                                               token * token_bytes);
    };
    rows.keys[panel] = at(args.k_offset, KeyBytes(args));
    rows.values[panel] = at(args.v_offset, ValueBytes(args));
    const auto params_at = [&](const PlaneCodec& codec, size_t plane,
                               uint32_t dim) {
      const uint16_t* params = at(plane, codec.ParamBytes(dim));
      for (size_t i = 0; i < codec.ParamBytes(dim) * kPanel; i += kLineBytes) {
        hwy::Prefetch(params + i / sizeof(uint16_t));
      }
      return params;
    };
    if (args.k_codec.packed()) {
      rows.key_params[panel] =
          params_at(args.k_codec, args.k_params_offset, args.k_dim);
    }
    if (args.v_codec.packed()) {
      rows.value_params[panel] =
          params_at(args.v_codec, args.v_params_offset, args.stored_v_dim);
    }
  }
  return true;
}

template <int kRows, int kPanels>
HWY_NOINLINE void ScoreRows(const Tile& tile, size_t panel, size_t row) {
  const size_t k_dim = tile.args.k_dim;
  ScoreBlock<kRows, kPanels>(
      tile.args.query + row * k_dim, k_dim,
      tile.scratch.keys + panel * k_dim * kPanel,
      tile.scratch.scores + row * kTileTokens + panel * kPanel);
}

template <int kRows, int kPanels>
HWY_NOINLINE void AddRows(const Tile& tile, size_t panel, size_t row) {
  const size_t stride = ValueStride(tile.args.v_dim);
  const TileSpan span = tile.Union(row, kRows);
  ValueBlock<kRows, kPanels>(
      tile.scratch.scores + row * kTileTokens + span.begin,
      span.end - span.begin,
      tile.scratch.values + (panel * kTileTokens + span.begin) * kPanel,
      tile.scratch.shrink + row,
      tile.sums.value + row * stride + panel * kPanel, stride);
}

// Calls the kernel for exactly `count` rows, 1 <= count <= kRows.
template <int kRows, int kPanels>
void ScoreRemainder(const Tile& tile, uint32_t panel, uint32_t row,
                    uint32_t count) {
  if (count == kRows) return ScoreRows<kRows, kPanels>(tile, panel, row);
  if constexpr (kRows > 1) {
    ScoreRemainder<kRows - 1, kPanels>(tile, panel, row, count);
  }
}

template <int kRows, int kPanels>
void AddRemainder(const Tile& tile, uint32_t panel, uint32_t row,
                  uint32_t count) {
  if (count == kRows) return AddRows<kRows, kPanels>(tile, panel, row);
  if constexpr (kRows > 1) {
    AddRemainder<kRows - 1, kPanels>(tile, panel, row, count);
  }
}

// Lines of a plane that are due per block of rows.
uint32_t LinesPerBlock(const Tile& tile, size_t token_bytes, uint32_t panels) {
  const uint32_t blocks =
      (tile.last_row - tile.first_row + kBlockRows - 1) / kBlockRows;
  const size_t lines = token_bytes * kTileTokens / kLineBytes;
  return static_cast<uint32_t>(lines / (panels * blocks)) + 1;
}

// Scores of kPanels panels from `first`, for all rows that see some of them.
template <int kRows, int kPanels>
void ScorePanels(const Tile& tile, uint32_t first, uint32_t lines,
                 PrefetchStream& next) {
  for (uint32_t row = tile.first_row; row < tile.last_row; row += kRows) {
    const uint32_t count = std::min<uint32_t>(kRows, tile.last_row - row);
    const TileSpan span = tile.Union(row, count);
    if (span.end <= first * kPanel) continue;
    if (span.begin >= (first + kPanels) * kPanel) continue;
    next.Next(lines * kPanels);
    ScoreRemainder<kRows, kPanels>(tile, first, row, count);
  }
}

void Scores(const Tile& tile) {
  PrefetchStream next;
  // Coded planes are asked for where they are decoded.
  if (tile.next != nullptr && !tile.args.k_codec.packed()) {
    next = {tile.next->keys, KeyBytes(tile.args)};
  }
  const uint32_t lines = LinesPerBlock(tile, KeyBytes(tile.args), kTilePanels);
  const uint32_t last = (tile.seen.end + kPanel - 1) / kPanel;
  uint32_t p = tile.seen.begin / kPanel;
  if constexpr (kBlockPanels > 1) {
    const bool few = tile.last_row - tile.first_row <= kFewRows;
    for (; few && p + kFewRowsPanels <= last; p += kFewRowsPanels) {
      ScorePanels<kFewRows, kFewRowsPanels>(tile, p, lines, next);
    }
  }
  for (; p + kBlockPanels <= last; p += kBlockPanels) {
    ScorePanels<kBlockRows, kBlockPanels>(tile, p, lines, next);
  }
  for (; p < last; ++p) {
    ScorePanels<kBlockRows, 1>(tile, p, lines, next);
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

// Adds kPanels panels of values from `first` to all rows, `step` at a time.
template <int kRows, int kPanels>
void AddPanels(const Tile& tile, uint32_t first, uint32_t step, uint32_t lines,
               PrefetchStream& next) {
  for (uint32_t row = tile.first_row; row < tile.last_row; row += step) {
    const uint32_t count = std::min<uint32_t>(step, tile.last_row - row);
    next.Next(lines * kPanels);
    AddRemainder<kRows, kPanels>(tile, first, row, count);
  }
}

// `exact`: some value of the tile is not finite, and 0 times it is not 0; each
// row must meet its own tokens alone.
void Values(const Tile& tile, bool exact) {
  const uint32_t step = exact ? 1 : kBlockRows;
  const uint32_t panels = ValueStride(tile.args.v_dim) / kPanel;
  PrefetchStream next;
  if (tile.next != nullptr && !tile.args.v_codec.packed()) {
    next = {tile.next->values, ValueBytes(tile.args)};
  }
  const uint32_t lines = LinesPerBlock(tile, ValueBytes(tile.args), panels);
  uint32_t p = 0;
  if constexpr (kBlockPanels > 1) {
    const bool few = tile.last_row - tile.first_row <= kFewRows;
    for (; few && p + kFewRowsPanels <= panels; p += kFewRowsPanels) {
      AddPanels<kFewRows, kFewRowsPanels>(tile, p, step, lines, next);
    }
  }
  for (; p + kBlockPanels <= panels; p += kBlockPanels) {
    AddPanels<kBlockRows, kBlockPanels>(tile, p, step, lines, next);
  }
  for (; p < panels; ++p) {
    AddPanels<kBlockRows, 1>(tile, p, step, lines, next);
  }
}

#if EVERWARM_HAS_F16
// Above this many rows storing a tile of floats begins to pay.
constexpr uint32_t kMaxFusedRows = 8;

template <int kRows>
void FusedScoreRows(const Tile& tile, size_t row, const uint16_t* columns,
                    PrefetchStream& stream) {
  const size_t k_dim = tile.args.k_dim;
  FusedScores<kRows>(columns, k_dim, tile.seen.begin / kPanel,
                     (tile.seen.end + kPanel - 1) / kPanel,
                     tile.args.query + row * k_dim,
                     tile.scratch.scores + row * kTileTokens, stream);
}

template <int kRows>
void FusedAddRows(const Tile& tile, size_t row, PrefetchStream& stream) {
  const size_t stride = ValueStride(tile.args.v_dim);
  FusedValues<kRows>({tile.rows.values, tile.args.stored_v_dim},
                     tile.args.v_dim, tile.seen.begin, tile.seen.end,
                     tile.scratch.scores + row * kTileTokens,
                     tile.scratch.shrink + row, tile.sums.value + row * stride,
                     stride, stream);
}

void FusedTile(const Tile& tile) {
  const PartitionArgs& args = tile.args;
  // The room of a tile of floats is more than enough.
  auto* columns = reinterpret_cast<uint16_t*>(tile.scratch.keys);
  PrefetchStream values(tile.rows.values, ValueBytes(args));
  TransposeKeys(tile.rows.keys, args.k_dim, tile.seen.begin / kPanel,
                (tile.seen.end + kPanel - 1) / kPanel, columns, values);
  for (uint32_t row = tile.first_row; row < tile.last_row; row += 4) {
    const uint32_t count = tile.last_row - row;
    if (count == 1) FusedScoreRows<1>(tile, row, columns, values);
    if (count == 2) FusedScoreRows<2>(tile, row, columns, values);
    if (count == 3) FusedScoreRows<3>(tile, row, columns, values);
    if (count >= 4) FusedScoreRows<4>(tile, row, columns, values);
  }
  values.Rest();
  Weights(tile);
  PrefetchStream keys;
  if (tile.next != nullptr) keys = {tile.next->keys, KeyBytes(args)};
  for (uint32_t row = tile.first_row; row < tile.last_row; row += 4) {
    const uint32_t count = tile.last_row - row;
    if (count == 1) FusedAddRows<1>(tile, row, keys);
    if (count == 2) FusedAddRows<2>(tile, row, keys);
    if (count == 3) FusedAddRows<3>(tile, row, keys);
    if (count >= 4) FusedAddRows<4>(tile, row, keys);
  }
}

template <int kRows>
void ScorePackedRows(const Tile& tile, const PackedPlane& keys,
                     const ByteTile& bytes, size_t row,
                     PrefetchStream& stream) {
  ScorePacked<kRows>(keys, bytes, tile.seen.begin / kPanel,
                     (tile.seen.end + kPanel - 1) / kPanel,
                     tile.args.query + row * tile.args.k_dim,
                     tile.scratch.scores + row * kTileTokens, stream);
}

template <int kRows>
void AddPackedRows(const Tile& tile, const PackedPlane& values,
                   const ByteRows& bytes, size_t row, PrefetchStream& stream) {
  AddPacked<kRows>(
      values, bytes, tile.seen.begin, tile.seen.end,
      tile.scratch.scores + row * kTileTokens, tile.scratch.shrink + row,
      tile.sums.value + row * ValueStride(tile.args.v_dim), stream);
}

void FusedPackedTile(const Tile& tile) {
  const PartitionArgs& args = tile.args;
  const uint32_t first = tile.seen.begin / kPanel;
  const uint32_t last = (tile.seen.end + kPanel - 1) / kPanel;
  const PackedPlane keys = KeyPlane(tile);
  const ByteTile key_bytes =
      LayOutBytes(tile.scratch.keys, args.k_dim, args.k_codec);
  PrefetchStream next_values(tile.rows.values, ValueBytes(args));
  LoadParams(keys, first, last, key_bytes);
  ForBits(args.k_codec.bits, [&]<int kBits>() HWY_ATTR {
    TurnKeys<kBits>(keys, first, last, key_bytes, next_values);
  });
  for (uint32_t row = tile.first_row; row < tile.last_row; row += 4) {
    const uint32_t count = tile.last_row - row;
    if (count == 1) ScorePackedRows<1>(tile, keys, key_bytes, row, next_values);
    if (count == 2) ScorePackedRows<2>(tile, keys, key_bytes, row, next_values);
    if (count == 3) ScorePackedRows<3>(tile, keys, key_bytes, row, next_values);
    if (count >= 4) ScorePackedRows<4>(tile, keys, key_bytes, row, next_values);
  }
  next_values.Rest();
  Weights(tile);
  PrefetchStream next_keys;
  if (tile.next != nullptr) next_keys = {tile.next->keys, KeyBytes(args)};
  const PackedPlane values = ValuePlane(tile);
  const ByteTile value_bytes =
      LayOutBytes(tile.scratch.values, args.v_dim, args.v_codec);
  LoadParams(values, first, last, value_bytes);
  const ByteRows rows =
      SpreadValues(values, value_bytes, tile.seen.begin, tile.seen.end);
  for (uint32_t row = tile.first_row; row < tile.last_row; row += 4) {
    const uint32_t count = tile.last_row - row;
    if (count == 1) AddPackedRows<1>(tile, values, rows, row, next_keys);
    if (count == 2) AddPackedRows<2>(tile, values, rows, row, next_keys);
    if (count == 3) AddPackedRows<3>(tile, values, rows, row, next_keys);
    if (count >= 4) AddPackedRows<4>(tile, values, rows, row, next_keys);
  }
  next_keys.Rest();
}
#endif

// Handles a few rows that see the same tokens, in widths of whole vectors.
bool TryFused(const Tile& tile) {
#if EVERWARM_HAS_F16
  const PartitionArgs& args = tile.args;
  if (tile.last_row - tile.first_row > kMaxFusedRows) return false;
  const TileSpan first = tile.Span(tile.first_row);
  const TileSpan last = tile.Span(tile.last_row - 1);
  if (first.begin != last.begin || first.end != last.end) return false;
  if (IsWhole(args.k_codec, args.k_dim) && IsWhole(args.v_codec, args.v_dim) &&
      args.v_dim == args.stored_v_dim) {
    FusedPackedTile(tile);
    return true;
  }
  if (args.k_dim % 8 != 0 || args.v_dim % 8 != 0) return false;
  if (args.k_codec.packed() || args.v_codec.packed()) return false;
  FusedTile(tile);
  return true;
#else
  (void)tile;
  return false;
#endif
}

// Keys that are seen, as floats in the scratch.
void FloatKeys(const Tile& tile) {
  const PartitionArgs& args = tile.args;
  const uint32_t first = tile.seen.begin / kPanel;
  const uint32_t last = (tile.seen.end + kPanel - 1) / kPanel;
  if (!args.k_codec.packed()) {
    ConvertKeys(tile.rows.keys, args.k_dim, first, last, tile.scratch.keys);
    return;
  }
  PrefetchStream values(tile.rows.values, ValueBytes(args));
  DecodeKeys(KeyPlane(tile), first, last, tile.scratch.keys, values);
}

// The same for values; false if some are not finite.
bool FloatValues(const Tile& tile) {
  const PartitionArgs& args = tile.args;
  if (!args.v_codec.packed()) {
    return ConvertValues({tile.rows.values, args.stored_v_dim}, args.v_dim,
                         tile.seen.begin, tile.seen.end, tile.scratch.values);
  }
  PrefetchStream keys;
  if (tile.next != nullptr) keys = {tile.next->keys, KeyBytes(args)};
  return DecodeValues(ValuePlane(tile), tile.seen.begin, tile.seen.end,
                      tile.scratch.values, keys);
}

void AccumulateTile(const PartitionArgs& args, const PartitionScratch& scratch,
                    const PartitionSums& sums, TokenPos begin,
                    const TileRows& rows, const TileRows* next) {
  uint32_t first = args.num_spans * args.heads;
  uint32_t last = 0;
  for (uint32_t i = 0; i < args.num_spans; ++i) {
    const TileSpan span = SpanInTile(args.spans[i], begin);
    if (span.end == 0) continue;
    first = std::min(first, i * args.heads);
    last = (i + 1) * args.heads;
    std::fill_n(scratch.seen + i * args.heads, args.heads, span);
  }
  if (last == 0) return;
  const TileSpan seen = {scratch.seen[first].begin, scratch.seen[last - 1].end};
  const Tile tile{args, scratch, sums, begin, rows, next, first, last, seen};
  if (TryFused(tile)) return;
  FloatKeys(tile);
  Scores(tile);
  Weights(tile);
  const bool finite = FloatValues(tile);
  Values(tile, !finite);
}

void BeginPartition(const PartitionArgs& args, const PartitionScratch& scratch,
                    const PartitionSums& sums) {
  const uint32_t query_rows = args.num_spans * args.heads;
  const size_t values = size_t{query_rows} * ValueStride(args.v_dim);
  std::fill_n(sums.max, query_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.lanes, size_t{query_rows} * kSumLanes, 0.0f);
  std::fill_n(sums.value, values, 0.0f);
}

// Tiles of [begin, end).
void AccumulateTiles(const PartitionArgs& args, TokenPos begin, TokenPos end,
                     const PartitionScratch& scratch,
                     const PartitionSums& sums) {
  TileRows rows[2];
  bool found = FindRows(args, begin, rows[0]);
  for (TokenPos tile = begin; tile < end; tile += kTileTokens) {
    const uint32_t current = (tile - begin) / kTileTokens % 2;
    // Beyond the end only where the caller goes on there.
    const bool more = tile + kTileTokens < args.read_end;
    const bool next =
        more && FindRows(args, tile + kTileTokens, rows[1 - current]);
    if (found) {
      AccumulateTile(args, scratch, sums, tile, rows[current],
                     next ? &rows[1 - current] : nullptr);
    }
    found = next;
  }
}

void EndPartition(const PartitionArgs& args, const PartitionScratch& scratch,
                  const PartitionSums& sums) {
  const uint32_t query_rows = args.num_spans * args.heads;
  for (uint32_t r = 0; r < query_rows; ++r) {
    sums.sum[r] = SumLanes(scratch.lanes + r * kSumLanes);
  }
  SettleZeros(sums.value, size_t{query_rows} * ValueStride(args.v_dim));
}

void AccumulatePartition(const PartitionArgs& args,
                         const PartitionScratch& scratch,
                         const PartitionSums& sums) {
  BeginPartition(args, scratch, sums);
  AccumulateTiles(args, args.begin, args.begin + kPartitionTokens, scratch,
                  sums);
  EndPartition(args, scratch, sums);
}

void AccumulateMixedPartition(const PartitionArgs& first,
                              const PartitionArgs& rest, TokenPos border,
                              const PartitionScratch& scratch,
                              const PartitionSums& sums) {
  const TokenPos end = first.begin + kPartitionTokens;
  BeginPartition(first, scratch, sums);
  AccumulateTiles(first, first.begin, std::min(border, end), scratch, sums);
  if (border < end) AccumulateTiles(rest, border, end, scratch, sums);
  EndPartition(rest, scratch, sums);
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

void AddSink(float score, uint32_t stride, RowSums& row, float* value) {
  const DF d;
  const float max = std::max(row.max, score);
  const auto a = Exp2(d, hn::Set(d, row.max - max));
  const auto b = Exp2(d, hn::Set(d, score - max));
  row.max = max;
  row.sum = hn::GetLane(hn::MulAdd(hn::Set(d, row.sum), a, b));
  for (uint32_t i = 0; i < stride; i += hn::Lanes(d)) {
    hn::Store(hn::Mul(hn::Load(d, value + i), a), d, value + i);
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
HWY_EXPORT(AccumulateMixedPartition);
HWY_EXPORT(FoldPartition);
HWY_EXPORT(AddSink);
HWY_EXPORT(FinishRow);
HWY_EXPORT(ScaleQuery);
HWY_EXPORT(Target);
}  // namespace

void AccumulatePartition(const PartitionArgs& args,
                         const PartitionScratch& scratch,
                         const PartitionSums& sums) {
  HWY_DYNAMIC_DISPATCH(AccumulatePartition)(args, scratch, sums);
}

void AccumulateMixedPartition(const PartitionArgs& first,
                              const PartitionArgs& rest, TokenPos border,
                              const PartitionScratch& scratch,
                              const PartitionSums& sums) {
  HWY_DYNAMIC_DISPATCH(AccumulateMixedPartition)
  (first, rest, border, scratch, sums);
}

void FoldPartition(bool first, const RowSums& part, const float* part_value,
                   uint32_t stride, RowSums& row, float* value) {
  HWY_DYNAMIC_DISPATCH(FoldPartition)
  (first, part, part_value, stride, row, value);
}

void AddSink(float score, uint32_t stride, RowSums& row, float* value) {
  HWY_DYNAMIC_DISPATCH(AddSink)(score, stride, row, value);
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
