// Splits the rows of a step into items for threads. What an item computes per
// row is fixed by kernels/numerics.h; only who computes it, and when, differs
// here.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_planes.h"
#include "kernels/numerics.h"
#include "kernels/partition.h"
#include "kernels/rotation.h"
#include "kernels/work_split.h"

namespace everwarm::kernels {
namespace {

constexpr size_t kAlignment = 64;

// Floats on a cache line boundary; grows, never shrinks.
class FloatBuffer {
 public:
  void Reserve(size_t count) {
    if (count <= size_) return;
    data_.reset(static_cast<float*>(
        ::operator new (count * sizeof(float), std::align_val_t{kAlignment})));
    size_ = count;
  }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const {
      ::operator delete (p, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

// Hands out parts of a buffer, each on a cache line boundary.
class FloatArena {
 public:
  explicit FloatArena(float* base) : base_(base) {}
  float* Take(size_t count) {
    float* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += AlignedCount(count);
    return at;
  }
  size_t used() const { return used_; }

 private:
  static size_t AlignedCount(size_t count) {
    constexpr size_t kFloats = kAlignment / sizeof(float);
    return (count + kFloats - 1) / kFloats * kFloats;
  }
  float* base_;
  size_t used_ = 0;
};

}  // namespace

struct AttentionPlan::Impl {
  // The memory of one thread. Arrays are per query row of an item.
  struct Worker {
    PartitionScratch scratch;
    PartitionSums sums;
    float* query = nullptr;  // [query rows, k_dim]
    float* value = nullptr;  // folded so far [query rows, stride]
    std::vector<RowSums> folded;
    std::vector<VisibleSpan> spans;  // [members]
    std::vector<TileSpan> seen;
    FloatBuffer buffer;
  };

  void PrepareWorkers();
  // Returns the floats that it takes; a null base only counts.
  size_t LayOut(Worker& worker, float* base) const;
  void PrepareRecords();

  void RunItem(const WorkItem& item, const LayerOffsets& offsets,
               const AttentionQueries& queries, float* out, Worker& worker);
  void ScaleQueries(const WorkItem& item, const float* q, Worker& worker) const;
  // What is common to the item's partitions, of blocks with these planes.
  PartitionArgs MakeArgs(const WorkItem& item, const CodedPlanes& planes,
                         const Worker& worker) const;
  void FillSpans(const WorkGroup& group, uint32_t partition,
                 Worker& worker) const;
  // Folds or records what a partition gave each of the item's rows.
  void Settle(const WorkItem& item, uint32_t partition, Worker& worker);
  void FoldRecords(uint32_t row, uint32_t kv_head, Worker& worker,
                   uint32_t first_query_row) const;
  // The sinks of the heads of one row and KV head.
  void AddSinks(const float* sinks, Worker& worker,
                uint32_t first_query_row) const;
  void Finish(uint32_t row, uint32_t kv_head, const Worker& worker,
              uint32_t first_query_row, float* out) const;

  uint32_t heads() const { return shape.num_heads / shape.num_kv_heads; }
  uint32_t Member(const WorkGroup& group, uint32_t m) const {
    return split.members()[group.first_member + m];
  }
  std::atomic<uint32_t>& Counter(uint32_t row, uint32_t kv_head) const {
    return counters[size_t{row} * shape.num_kv_heads + kv_head];
  }

  AttentionShape shape;
  uint32_t stride = 0;  // ValueStride(v_dim)
  uint32_t num_threads = 1;
  std::vector<AttentionRow> rows;
  WorkSplit split;
  std::vector<std::unique_ptr<Worker>> workers;
  // Sums of rows that several items work on: RowWork::Record().
  FloatBuffer record_values;  // [record, stride]
  std::vector<RowSums> records;
  // Items that a row and KV head still waits for; used where there are several.
  std::unique_ptr<std::atomic<uint32_t>[]> counters;
  size_t counter_capacity = 0;
  std::atomic<uint32_t> next{0};
};

size_t AttentionPlan::Impl::LayOut(Worker& worker, float* base) const {
  FloatArena arena(base);
  const size_t n = size_t{split.max_members()} * heads();
  worker.scratch.keys = arena.Take(size_t{kTileTokens} * shape.k_dim);
  worker.scratch.values = arena.Take(size_t{kTileTokens} * stride);
  worker.scratch.scores = arena.Take(n * kTileTokens);
  worker.scratch.lanes = arena.Take(n * kSumLanes);
  worker.scratch.shrink = arena.Take(n);
  worker.sums.max = arena.Take(n);
  worker.sums.sum = arena.Take(n);
  worker.sums.value = arena.Take(n * stride);
  worker.query = arena.Take(n * shape.k_dim);
  worker.value = arena.Take(n * stride);
  return arena.used();
}

void AttentionPlan::Impl::PrepareWorkers() {
  const size_t members = split.max_members();
  const size_t query_rows = members * heads();
  while (workers.size() < num_threads) {
    workers.push_back(std::make_unique<Worker>());
  }
  for (std::unique_ptr<Worker>& worker : workers) {
    worker->buffer.Reserve(LayOut(*worker, nullptr));
    LayOut(*worker, worker->buffer.data());
    worker->spans.resize(std::max(worker->spans.size(), members));
    worker->seen.resize(std::max(worker->seen.size(), query_rows));
    worker->folded.resize(std::max(worker->folded.size(), query_rows));
    worker->scratch.seen = worker->seen.data();
  }
}

void AttentionPlan::Impl::PrepareRecords() {
  record_values.Reserve(split.num_records() * stride);
  records.resize(std::max(records.size(), split.num_records()));
  const size_t num_counters = rows.size() * shape.num_kv_heads;
  if (num_counters > counter_capacity) {
    counters = std::make_unique<std::atomic<uint32_t>[]>(num_counters);
    counter_capacity = num_counters;
  }
  for (uint32_t row = 0; row < rows.size(); ++row) {
    for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
      Counter(row, h).store(split.rows()[row].pieces,
                            std::memory_order_relaxed);
    }
  }
}

void AttentionPlan::Impl::ScaleQueries(const WorkItem& item, const float* q,
                                       Worker& worker) const {
  const WorkGroup& group = split.groups()[item.group];
  const float factor = QueryFactor(shape);
  for (uint32_t m = 0; m < group.num_members; ++m) {
    const size_t head = size_t{Member(group, m)} * shape.num_heads +
                        size_t{item.kv_head} * heads();
    float* scaled = worker.query + size_t{m} * heads() * shape.k_dim;
    ScaleQuery(q + head * shape.k_dim, factor, heads() * shape.k_dim, scaled);
    for (uint32_t h = 0; shape.k_rotation != 0 && h < heads(); ++h) {
      RotateHead(scaled + size_t{h} * shape.k_dim, shape.k_dim,
                 shape.k_rotation);
    }
  }
}

PartitionArgs AttentionPlan::Impl::MakeArgs(const WorkItem& item,
                                            const CodedPlanes& planes,
                                            const Worker& worker) const {
  const WorkGroup& group = split.groups()[item.group];
  PartitionArgs args;
  args.blocks = rows[Member(group, 0)].blocks;
  args.block_tokens = shape.block_tokens;
  args.k_dim = shape.k_dim;
  args.v_dim = shape.v_dim;
  args.stored_v_dim = planes.v.dim;
  args.k_codec = planes.k.codec;
  args.v_codec = planes.v.codec;
  args.k_offset = planes.k.HeadOffset(item.kv_head);
  args.v_offset = planes.v.HeadOffset(item.kv_head);
  args.k_params_offset = planes.k.HeadParamsOffset(item.kv_head);
  args.v_params_offset = planes.v.HeadParamsOffset(item.kv_head);
  args.score_cap = ScoreCap(shape);
  args.read_end = item.last_partition * kPartitionTokens;
  args.heads = heads();
  args.spans = worker.spans.data();
  args.num_spans = group.num_members;
  args.query = worker.query;
  return args;
}

void AttentionPlan::Impl::FillSpans(const WorkGroup& group, uint32_t partition,
                                    Worker& worker) const {
  for (uint32_t m = 0; m < group.num_members; ++m) {
    if (group.full) {
      worker.spans[m] = {partition * kPartitionTokens,
                         (partition + 1) * kPartitionTokens};
    } else {
      worker.spans[m] = Visible(shape, rows[Member(group, m)]);
    }
  }
}

void AttentionPlan::Impl::Settle(const WorkItem& item, uint32_t partition,
                                 Worker& worker) {
  const WorkGroup& group = split.groups()[item.group];
  for (uint32_t m = 0; m < group.num_members; ++m) {
    const RowWork& work = split.rows()[Member(group, m)];
    if (partition < work.first_partition || partition >= work.last_partition) {
      continue;
    }
    for (uint32_t h = 0; h < heads(); ++h) {
      const size_t i = size_t{m} * heads() + h;
      const RowSums part = {worker.sums.max[i], worker.sums.sum[i]};
      const float* value = worker.sums.value + i * stride;
      if (work.pieces == 1) {
        FoldPartition(partition == work.first_partition, part, value, stride,
                      worker.folded[i], worker.value + i * stride);
      } else {
        const size_t record =
            work.Record(shape.num_heads, partition, item.kv_head * heads() + h);
        records[record] = part;
        std::copy_n(value, stride, record_values.data() + record * stride);
      }
    }
  }
}

void AttentionPlan::Impl::FoldRecords(uint32_t row, uint32_t kv_head,
                                      Worker& worker,
                                      uint32_t first_query_row) const {
  const RowWork& work = split.rows()[row];
  for (uint32_t p = work.first_partition; p < work.last_partition; ++p) {
    for (uint32_t h = 0; h < heads(); ++h) {
      const size_t record =
          work.Record(shape.num_heads, p, kv_head * heads() + h);
      const size_t i = first_query_row + h;
      FoldPartition(p == work.first_partition, records[record],
                    record_values.data() + record * stride, stride,
                    worker.folded[i], worker.value + i * stride);
    }
  }
}

void AttentionPlan::Impl::AddSinks(const float* sinks, Worker& worker,
                                   uint32_t first_query_row) const {
  for (uint32_t h = 0; h < heads(); ++h) {
    const size_t i = first_query_row + h;
    AddSink(sinks[h] * kLog2E, stride, worker.folded[i],
            worker.value + i * stride);
  }
}

void AttentionPlan::Impl::Finish(uint32_t row, uint32_t kv_head,
                                 const Worker& worker, uint32_t first_query_row,
                                 float* out) const {
  const size_t head = size_t{row} * shape.num_heads + size_t{kv_head} * heads();
  for (uint32_t h = 0; h < heads(); ++h) {
    const size_t i = first_query_row + h;
    float* result = out + (head + h) * shape.v_dim;
    FinishRow(worker.folded[i], worker.value + i * stride, shape.v_dim, result);
    if (shape.v_rotation != 0) {
      UnrotateHead(result, shape.v_dim, shape.v_rotation);
    }
  }
}

void AttentionPlan::Impl::RunItem(const WorkItem& item,
                                  const LayerOffsets& offsets,
                                  const AttentionQueries& queries, float* out,
                                  Worker& worker) {
  const WorkGroup& group = split.groups()[item.group];
  ScaleQueries(item, queries.q, worker);
  const TokenPos border = shape.first.tokens;
  PartitionArgs args = MakeArgs(item, PlanesAt(shape, offsets, border), worker);
  for (uint32_t p = item.first_partition; p < item.last_partition; ++p) {
    FillSpans(group, p, worker);
    args.begin = p * kPartitionTokens;
    if (args.begin < border) {
      PartitionArgs first = MakeArgs(item, PlanesAt(shape, offsets, 0), worker);
      first.begin = args.begin;
      first.read_end = std::min(args.read_end, border);
      AccumulateMixedPartition(first, args, border, worker.scratch,
                               worker.sums);
    } else {
      AccumulatePartition(args, worker.scratch, worker.sums);
    }
    Settle(item, p, worker);
  }
  for (uint32_t m = 0; m < group.num_members; ++m) {
    const uint32_t row = Member(group, m);
    const uint32_t pieces = split.rows()[row].pieces;
    if (pieces > 1) {
      // Releases this item's records, acquires those of the others.
      std::atomic<uint32_t>& counter = Counter(row, item.kv_head);
      if (counter.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      counter.store(pieces, std::memory_order_relaxed);  // for the next layer
      FoldRecords(row, item.kv_head, worker, m * heads());
    }
    if (queries.sinks != nullptr) {
      AddSinks(queries.sinks + size_t{item.kv_head} * heads(), worker,
               m * heads());
    }
    Finish(row, item.kv_head, worker, m * heads(), out);
  }
}

AttentionPlan::AttentionPlan() : impl_(std::make_unique<Impl>()) {}
AttentionPlan::~AttentionPlan() = default;

void AttentionPlan::Prepare(const AttentionShape& shape,
                            absl::Span<const AttentionRow> rows,
                            uint32_t num_threads) {
  Impl& impl = *impl_;
  impl.shape = shape;
  impl.stride = ValueStride(shape.v_dim);
  impl.num_threads = std::max<uint32_t>(1, num_threads);
  impl.rows.assign(rows.begin(), rows.end());
  impl.split.Build(shape, impl.rows, impl.num_threads);
  impl.PrepareWorkers();
  impl.PrepareRecords();
  BeginLayer();
}

void AttentionPlan::BeginLayer() {
  impl_->next.store(0, std::memory_order_relaxed);
}

void AttentionPlan::Run(const LayerOffsets& offsets,
                        const AttentionQueries& queries, float* out,
                        uint32_t thread) {
  Impl& impl = *impl_;
  Impl::Worker& worker = *impl.workers[thread];
  const std::vector<WorkItem>& items = impl.split.items();
  for (;;) {
    const uint32_t i = impl.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= items.size()) return;
    impl.RunItem(items[i], offsets, queries, out, worker);
  }
}

}  // namespace everwarm::kernels
