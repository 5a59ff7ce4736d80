// Attention straight over block tables, and the writing of new KV into blocks.
//
// A row is one query position of one sequence. Its result depends on that row's
// query and the KV it may see, and on nothing else: not on the other rows of
// the call, not on the number of threads. Scores are summed tile by tile over
// fixed partitions of the positions (AttentionShape::partition_tokens), each
// with a running maximum, and partitions are merged in order.
//
// KV lies in slots as base/block_geometry.h says, in the planes of
// KvGeometry(): one row [token][bytes] per layer, plane and KV head, coded as
// kernels/codec.h says. Attention reads the coded form. The codec of a block
// follows from its span's index: AttentionShape::first.
#ifndef EVERWARM_KERNELS_ATTENTION_H_
#define EVERWARM_KERNELS_ATTENTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "base/by_span.h"
#include "base/ids.h"
#include "kernels/codec.h"

namespace everwarm::kernels {

// What all layers of a group share.
struct AttentionShape {
  uint32_t block_tokens = 64;  // a power of two from 16 to 256
  uint32_t num_heads = 0;
  // Divides num_heads; query head h reads KV head h / (num_heads /
  // num_kv_heads).
  uint32_t num_kv_heads = 0;
  uint32_t k_dim = 0;  // elements of one key and one query head
  uint32_t v_dim = 0;  // elements of one value and one output head
  // Values have no bytes of their own: each is the first v_dim elements of its
  // key (compressed KV, MLA). Requires: v_dim <= k_dim, v_codec == k_codec.
  bool v_in_k = false;
  // Scores are multiplied by this before the softmax.
  float scale = 1.0f;
  // 0: none. Else a score s becomes softcap * tanh(s / softcap).
  float softcap = 0.0f;
  // 0: a position sees all before it. Else the last `window`, itself included.
  uint32_t window = 0;
  // Heads lie in blocks rotated (kernels/rotation.h) by parts of so many
  // numbers, whatever the codec: keys, and queries with them; values, and
  // results are turned back. 0: as they are. Require: RotateHead() can, and
  // where values lie in keys, both are equal.
  uint32_t k_rotation = 0;
  uint32_t v_rotation = 0;
  PlaneCodec k_codec;
  PlaneCodec v_codec;
  // What the first positions of every sequence are coded by instead.
  struct First {
    // A multiple of block_tokens and of kCodedTokens; 0: none.
    uint32_t tokens = 0;
    PlaneCodec k_codec;
    PlaneCodec v_codec;
  };
  First first;

  // Elements of what a value is stored in.
  uint32_t StoredValueDim() const { return v_in_k ? k_dim : v_dim; }
};

// Tokens of one fixed partition of the positions; a multiple of every block
// size.
inline constexpr uint32_t kPartitionTokens = 512;

// Positions from a multiple of it on that have one codec, whatever the block
// size.
inline constexpr uint32_t kCodedTokens = 64;

struct AttentionRow {
  // Slot addresses of the row's sequence and group, by span index. Entries of
  // spans that the row cannot see may be null.
  std::byte* const* blocks = nullptr;
  // The row's own position; it sees [position - window + 1, position].
  TokenPos position = 0;
};

// What the heads of one layer ask with.
struct AttentionQueries {
  const float* q = nullptr;  // [rows, num_heads, k_dim]
  // [num_heads]: a logit of each head that has a share of the softmax and no
  // value. Null: none.
  const float* sinks = nullptr;
};

// Where one layer's planes begin in a slot (BlockGeometry::PlaneOffset).
struct PlaneOffsets {
  size_t k = 0;
  size_t v = 0;
  // Of codecs that have parameters.
  size_t k_params = 0;
  size_t v_params = 0;
};
struct LayerOffsets {
  PlaneOffsets rest;
  PlaneOffsets first;  // in blocks of AttentionShape::first
};

// Slots of `num_layers` layers. Planes of one layer: keys and their parameters,
// values and theirs; codecs without parameters have no plane for them, nor have
// values that lie in keys.
BySpan<BlockGeometry> KvGeometry(const AttentionShape& shape,
                                 uint32_t num_layers);

// Where they begin. Requires: `geometry` is a KvGeometry(shape).
LayerOffsets KvOffsets(const AttentionShape& shape,
                       const BySpan<BlockGeometry>& geometry, uint32_t layer);

// Codes new keys and values into the blocks at each row's position.
//
// Shapes: k [rows, num_kv_heads, k_dim] f32, v [rows, num_kv_heads, v_dim] f32
//   or, where values lie in keys, null.
// Threads: call once per thread with thread = 0 .. num_threads - 1.
void AppendKv(const AttentionShape& shape, const LayerOffsets& offsets,
              absl::Span<const AttentionRow> rows, const float* k,
              const float* v, uint32_t thread, uint32_t num_threads);

// The work of one step for one group, split into items that threads take in
// turn. Prepared once per step, run once per layer. Keeps its memory between
// steps.
//
// Threads:  Prepare() and BeginLayer() from one thread while nobody runs; Run()
//           from all threads of the pool at once.
class AttentionPlan {
 public:
  AttentionPlan();
  ~AttentionPlan();
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  // `rows` may be in any order; neighbours of one sequence at consecutive
  // positions share reads of its KV. The rows' block tables must stay valid.
  void Prepare(const AttentionShape& shape, absl::Span<const AttentionRow> rows,
               uint32_t num_threads);
  // Rearms the plan for the next layer.
  void BeginLayer();
  // Takes items until none is left. When all threads have returned, out is
  // complete.
  // Shapes: out [rows, num_heads, v_dim] f32.
  // No allocation, no failure.
  void Run(const LayerOffsets& offsets, const AttentionQueries& queries,
           float* out, uint32_t thread);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The scalar twin: the same sums in double precision, one row at a time.
void AttentionReference(const AttentionShape& shape,
                        const LayerOffsets& offsets,
                        absl::Span<const AttentionRow> rows,
                        const AttentionQueries& queries, float* out);

// Name of the instruction set that the kernels use here, such as "AVX2". The
// bits of a result may differ between two of them, so it is part of the
// numerics version.
const char* KernelTarget();

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_ATTENTION_H_
