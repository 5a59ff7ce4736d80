// One partition of one KV head for a set of query rows: the SIMD part of
// attention. kernels/numerics.h says what is summed, and in which order.
//
// A "query row" is one query head at one position; those of a position that
// share a KV head are neighbours: index = span * heads + head.
//
// Threads:  pure, any thread. No allocation, no failure.
#ifndef EVERWARM_KERNELS_PARTITION_H_
#define EVERWARM_KERNELS_PARTITION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/codec.h"
#include "kernels/numerics.h"

namespace everwarm::kernels {

// Floats per row of accumulators: v_dim rounded up to this.
inline constexpr uint32_t kPanel = 16;
constexpr uint32_t ValueStride(uint32_t v_dim) {
  return (v_dim + kPanel - 1) / kPanel * kPanel;
}

// Positions that a query row sees: [begin, end).
struct VisibleSpan {
  TokenPos begin = 0;
  TokenPos end = 0;
};

// What a query row sees of one tile, as offsets in it; empty if end is 0.
struct TileSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Where the sums of a partition go. Arrays begin on 64 bytes.
struct PartitionSums {
  float* max = nullptr;    // [query rows]
  float* sum = nullptr;    // [query rows]
  float* value = nullptr;  // [query rows, ValueStride(v_dim)]
};

// Working memory; arrays begin on 64 bytes and are overwritten.
struct PartitionScratch {
  float* keys = nullptr;     // [kTileTokens / kPanel, k_dim, kPanel]
  float* values = nullptr;   // [ValueStride / kPanel, kTileTokens, kPanel]
  float* scores = nullptr;   // [query rows, kTileTokens]
  float* lanes = nullptr;    // [query rows, kSumLanes]
  float* shrink = nullptr;   // [query rows]
  TileSpan* seen = nullptr;  // [query rows]
};

struct PartitionArgs {
  std::byte* const* blocks = nullptr;  // by span index of the sequence
  uint32_t block_tokens = 0;           // a multiple of kPanel
  uint32_t k_dim = 0;
  uint32_t v_dim = 0;
  uint32_t stored_v_dim = 0;  // AttentionShape::StoredValueDim()
  PlaneCodec k_codec;
  PlaneCodec v_codec;
  size_t k_offset = 0;  // of the KV head's row in a slot, bytes
  size_t v_offset = 0;
  size_t k_params_offset = 0;
  size_t v_params_offset = 0;
  float score_cap = 0.0f;  // ScoreCap()
  TokenPos begin = 0;      // the partition's first position
  TokenPos read_end = 0;   // the caller's partitions end here; for prefetching
  uint32_t heads = 0;      // query heads per position
  // Spans ascend in begin and in end, and there is no gap between neighbours:
  // every position from the first begin to the last end has a block.
  const VisibleSpan* spans = nullptr;
  uint32_t num_spans = 0;
  const float* query = nullptr;  // [num_spans * heads, k_dim], scaled
};

// A query row that sees nothing here gets max -inf, sum 0, value 0.
void AccumulatePartition(const PartitionArgs& args,
                         const PartitionScratch& scratch,
                         const PartitionSums& sums);

// The same for a partition that begins with positions of AttentionShape::first,
// which end at `border`: `first` reads those and `rest` the others, if there
// are any. But for codecs and offsets the two are equal.
void AccumulateMixedPartition(const PartitionArgs& first,
                              const PartitionArgs& rest, TokenPos border,
                              const PartitionScratch& scratch,
                              const PartitionSums& sums);

// The state of a row over the partitions so far.
struct RowSums {
  float max = 0.0f;
  float sum = 0.0f;
};

// Folds a partition's sums into a row. `value` and `part_value` hold `stride`
// floats (a multiple of kPanel). The first partition overwrites the row.
void FoldPartition(bool first, const RowSums& part, const float* part_value,
                   uint32_t stride, RowSums& row, float* value);

// Adds a score (in units of log2, as kernels/numerics.h has them) that has no
// value to a row whose partitions are all folded. `stride` as above.
void AddSink(float score, uint32_t stride, RowSums& row, float* value);

// out[i] = value[i] / sum; neither needs alignment.
void FinishRow(const RowSums& row, const float* value, uint32_t v_dim,
               float* out);

// scaled[i] = query[i] * factor.
void ScaleQuery(const float* query, float factor, uint32_t k_dim,
                float* scaled);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_PARTITION_H_
