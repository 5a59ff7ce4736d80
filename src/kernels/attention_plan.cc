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
#include "kernels/partition.h"

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

// Consecutive positions of one sequence that share conversions of its KV.
struct Group {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;
  uint32_t first_partition = 0;
  uint32_t last_partition = 0;  // exclusive
  // More than one: its partitions are shared out, and whoever finishes last for
  // a KV head folds them.
  uint32_t num_pieces = 1;
  size_t partials = 0;         // where its sums lie; floats
  uint32_t first_counter = 0;  // num_kv_heads counters
};

struct Item {
  uint32_t group = 0;
  uint32_t kv_head = 0;
  uint32_t first_partition = 0;
  uint32_t last_partition = 0;
  uint64_t cost = 0;
};

// Query rows that an item takes at once. More of them share a conversion; fewer
// keep queries and sums in a core's L2 cache.
constexpr uint32_t kMaxQueryRows = 96;
constexpr size_t kMaxRowBytes = size_t{256} << 10;
// Items per thread, so that the last one to finish is not late by much.
constexpr uint32_t kItemsPerThread = 8;

}  // namespace

struct AttentionPlan::Impl {
  // The memory of one thread.
  struct Worker {
    PartitionScratch scratch;
    PartitionSums sums;
    VisibleSpan* spans = nullptr;
    float* query = nullptr;
    float* value = nullptr;  // folded so far [query rows, stride]
    RowSums* row = nullptr;  // folded so far [query rows]
    std::vector<VisibleSpan> span_storage;
    std::vector<TileSpan> seen_storage;
    std::vector<RowSums> row_storage;
    FloatBuffer buffer;
  };

  void BuildGroups();
  void BuildItems();
  void PrepareWorkers(uint32_t num_threads);
  // Returns the floats that it takes; a null base only counts.
  size_t LayOut(Worker& worker, float* base) const;

  void RunItem(const Item& item, const LayerOffsets& offsets, const float* q,
               float* out, Worker& worker);
  void FoldAll(const Item& item, const PartitionSums& sums, uint32_t partition,
               Worker& worker) const;
  void Finish(const Item& item, float* out, const Worker& worker) const;
  // Sums of one partition of a shared group and KV head.
  PartitionSums Partials(const Item& item, uint32_t partition) const;

  uint32_t ratio() const { return shape.num_heads / shape.num_kv_heads; }
  VisibleSpan Visible(const AttentionRow& row) const {
    return {FirstVisible(shape, row.position), row.position + 1};
  }
  size_t HeadOffset(size_t plane, uint32_t kv_head, uint32_t dim) const {
    return plane + size_t{kv_head} * shape.block_tokens * dim * 2;
  }
  uint64_t Cost(const Group& group, uint32_t first, uint32_t last) const;

  AttentionShape shape;
  uint32_t stride = 0;          // ValueStride(v_dim)
  uint32_t max_query_rows = 0;  // of any group
  uint32_t num_threads = 1;
  std::vector<AttentionRow> rows;
  std::vector<Group> groups;
  std::vector<Item> items;
  std::vector<std::unique_ptr<Worker>> workers;
  FloatBuffer partials;
  size_t partial_floats = 0;
  std::unique_ptr<std::atomic<uint32_t>[]> counters;
  uint32_t num_counters = 0;
  uint32_t counter_capacity = 0;
  std::atomic<uint32_t> next{0};
};

uint64_t AttentionPlan::Impl::Cost(const Group& group, uint32_t first,
                                   uint32_t last) const {
  const VisibleSpan begin = Visible(rows[group.first_row]);
  const VisibleSpan end = Visible(rows[group.first_row + group.num_rows - 1]);
  const TokenPos from = std::max(begin.begin, first * kPartitionTokens);
  const TokenPos to = std::min(end.end, last * kPartitionTokens);
  return uint64_t{to - from} * group.num_rows;
}

// Runs of consecutive positions, cut so that a group's rows fit the cache.
void AttentionPlan::Impl::BuildGroups() {
  const size_t row_bytes = sizeof(float) * (shape.k_dim + size_t{2} * stride);
  const size_t query_rows =
      std::min<size_t>(kMaxQueryRows, kMaxRowBytes / row_bytes);
  const uint32_t max_rows =
      std::max<uint32_t>(1, static_cast<uint32_t>(query_rows) / ratio());
  groups.clear();
  max_query_rows = 0;
  for (uint32_t i = 0; i < rows.size();) {
    Group group;
    group.first_row = i;
    uint32_t end = i + 1;
    while (end < rows.size() && end - i < max_rows &&
           rows[end].blocks == rows[i].blocks &&
           rows[end].position == rows[end - 1].position + 1) {
      ++end;
    }
    group.num_rows = end - i;
    group.first_partition = Visible(rows[i]).begin / kPartitionTokens;
    group.last_partition = rows[end - 1].position / kPartitionTokens + 1;
    max_query_rows = std::max(max_query_rows, group.num_rows * ratio());
    groups.push_back(group);
    i = end;
  }
}

void AttentionPlan::Impl::BuildItems() {
  uint64_t total = 0;
  for (const Group& group : groups) {
    total += Cost(group, group.first_partition, group.last_partition);
  }
  total *= shape.num_kv_heads;
  const uint64_t target =
      std::max<uint64_t>(1, total / (uint64_t{num_threads} * kItemsPerThread));
  items.clear();
  partial_floats = 0;
  num_counters = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    Group& group = groups[g];
    const uint32_t partitions = group.last_partition - group.first_partition;
    const uint64_t cost =
        Cost(group, group.first_partition, group.last_partition);
    group.num_pieces = 1;
    if (num_threads > 1 && cost > target) {
      group.num_pieces = static_cast<uint32_t>(
          std::min<uint64_t>(partitions, (cost + target - 1) / target));
    }
    if (group.num_pieces > 1) {
      group.partials = partial_floats;
      group.first_counter = num_counters;
      num_counters += shape.num_kv_heads;
      partial_floats += size_t{partitions} * group.num_rows * shape.num_heads *
                        (stride + kPanel);
    }
    for (uint32_t p = 0; p < group.num_pieces; ++p) {
      const uint32_t first =
          group.first_partition + partitions * p / group.num_pieces;
      const uint32_t last =
          group.first_partition + partitions * (p + 1) / group.num_pieces;
      for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
        items.push_back({g, h, first, last, Cost(group, first, last)});
      }
    }
  }
  // Long ones first.
  std::stable_sort(
      items.begin(), items.end(),
      [](const Item& a, const Item& b) { return a.cost > b.cost; });
}

size_t AttentionPlan::Impl::LayOut(Worker& worker, float* base) const {
  FloatArena arena(base);
  const size_t n = max_query_rows;
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

void AttentionPlan::Impl::PrepareWorkers(uint32_t threads) {
  while (workers.size() < threads) {
    workers.push_back(std::make_unique<Worker>());
  }
  for (uint32_t t = 0; t < threads; ++t) {
    Worker& worker = *workers[t];
    const size_t n = max_query_rows;
    worker.buffer.Reserve(LayOut(worker, nullptr));
    LayOut(worker, worker.buffer.data());
    worker.span_storage.resize(std::max(worker.span_storage.size(), n));
    worker.row_storage.resize(std::max(worker.row_storage.size(), n));
    worker.seen_storage.resize(std::max(worker.seen_storage.size(), n));
    worker.spans = worker.span_storage.data();
    worker.scratch.seen = worker.seen_storage.data();
    worker.row = worker.row_storage.data();
  }
}

PartitionSums AttentionPlan::Impl::Partials(const Item& item,
                                            uint32_t partition) const {
  const Group& group = groups[item.group];
  const size_t query_rows = size_t{group.num_rows} * ratio();
  const size_t record = query_rows * (stride + kPanel);
  const size_t index =
      size_t{partition - group.first_partition} * shape.num_kv_heads +
      item.kv_head;
  float* base = partials.data() + group.partials + index * record;
  return {base + query_rows * stride, base + query_rows * (stride + 1), base};
}

void AttentionPlan::Impl::FoldAll(const Item& item, const PartitionSums& sums,
                                  uint32_t partition, Worker& worker) const {
  const Group& group = groups[item.group];
  for (uint32_t r = 0; r < group.num_rows; ++r) {
    const VisibleSpan& span = worker.spans[r];
    const uint32_t first = span.begin / kPartitionTokens;
    if (partition < first || partition > (span.end - 1) / kPartitionTokens) {
      continue;
    }
    for (uint32_t i = r * ratio(); i < (r + 1) * ratio(); ++i) {
      FoldPartition(partition == first, {sums.max[i], sums.sum[i]},
                    sums.value + size_t{i} * stride, stride, worker.row[i],
                    worker.value + size_t{i} * stride);
    }
  }
}

void AttentionPlan::Impl::Finish(const Item& item, float* out,
                                 const Worker& worker) const {
  const Group& group = groups[item.group];
  for (uint32_t r = 0; r < group.num_rows; ++r) {
    const size_t head = size_t{group.first_row + r} * shape.num_heads +
                        size_t{item.kv_head} * ratio();
    for (uint32_t h = 0; h < ratio(); ++h) {
      const size_t i = size_t{r} * ratio() + h;
      FinishRow(worker.row[i], worker.value + i * stride, shape.v_dim,
                out + (head + h) * shape.v_dim);
    }
  }
}

void AttentionPlan::Impl::RunItem(const Item& item, const LayerOffsets& offsets,
                                  const float* q, float* out, Worker& worker) {
  const Group& group = groups[item.group];
  const float factor = QueryFactor(shape);
  for (uint32_t r = 0; r < group.num_rows; ++r) {
    const uint32_t row = group.first_row + r;
    worker.spans[r] = Visible(rows[row]);
    const size_t head =
        size_t{row} * shape.num_heads + size_t{item.kv_head} * ratio();
    ScaleQuery(q + head * shape.k_dim, factor, ratio() * shape.k_dim,
               worker.query + size_t{r} * ratio() * shape.k_dim);
  }
  PartitionArgs args;
  args.blocks = rows[group.first_row].blocks;
  args.block_tokens = shape.block_tokens;
  args.k_dim = shape.k_dim;
  args.v_dim = shape.v_dim;
  args.k_offset = HeadOffset(offsets.k, item.kv_head, shape.k_dim);
  args.v_offset = HeadOffset(offsets.v, item.kv_head, shape.v_dim);
  args.score_cap = ScoreCap(shape);
  args.heads = ratio();
  args.spans = worker.spans;
  args.num_spans = group.num_rows;
  args.query = worker.query;
  const bool shared = group.num_pieces > 1;
  for (uint32_t p = item.first_partition; p < item.last_partition; ++p) {
    const PartitionSums sums = shared ? Partials(item, p) : worker.sums;
    args.begin = p * kPartitionTokens;
    args.read_end = item.last_partition * kPartitionTokens;
    AccumulatePartition(args, worker.scratch, sums);
    if (!shared) FoldAll(item, sums, p, worker);
  }
  if (shared) {
    std::atomic<uint32_t>& counter =
        counters[group.first_counter + item.kv_head];
    // Acquires what the others have released.
    if (counter.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    counter.store(group.num_pieces, std::memory_order_relaxed);
    for (uint32_t p = group.first_partition; p < group.last_partition; ++p) {
      FoldAll(item, Partials(item, p), p, worker);
    }
  }
  Finish(item, out, worker);
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
  impl.BuildGroups();
  impl.BuildItems();
  impl.PrepareWorkers(impl.num_threads);
  impl.partials.Reserve(impl.partial_floats);
  if (impl.num_counters > impl.counter_capacity) {
    impl.counters =
        std::make_unique<std::atomic<uint32_t>[]>(impl.num_counters);
    impl.counter_capacity = impl.num_counters;
  }
  for (const Group& group : impl.groups) {
    if (group.num_pieces == 1) continue;
    for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
      impl.counters[group.first_counter + h].store(group.num_pieces,
                                                   std::memory_order_relaxed);
    }
  }
  BeginLayer();
}

void AttentionPlan::BeginLayer() {
  impl_->next.store(0, std::memory_order_relaxed);
}

void AttentionPlan::Run(const LayerOffsets& offsets, const float* q, float* out,
                        uint32_t thread) {
  Impl& impl = *impl_;
  Impl::Worker& worker = *impl.workers[thread];
  for (;;) {
    const uint32_t i = impl.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= impl.items.size()) return;
    impl.RunItem(impl.items[i], offsets, q, out, worker);
  }
}

}  // namespace everwarm::kernels
