#include "kernels/work_split.h"

#include <algorithm>

namespace everwarm::kernels {
namespace {

// Query rows that an item takes at once. More of them share a conversion; fewer
// keep queries and sums in a core's L2 cache.
constexpr uint32_t kMaxQueryRows = 96;
constexpr size_t kMaxRowBytes = size_t{256} << 10;
// Items per thread, so that the last one to finish is not late by much.
constexpr uint32_t kItemsPerThread = 8;
// What reading and converting a token costs, in query rows that use it.
constexpr uint64_t kReadCost = 6;

}  // namespace

void WorkSplit::Build(const AttentionShape& shape,
                      absl::Span<const AttentionRow> rows,
                      uint32_t num_threads) {
  shape_ = shape;
  rows_ = rows;
  groups_.clear();
  members_.clear();
  singles_.clear();
  row_work_.assign(rows.size(), {});
  for (size_t r = 0; r < rows.size(); ++r) {
    const VisibleSpan span = Visible(shape, rows[r]);
    row_work_[r].first_partition = span.begin / kPartitionTokens;
    row_work_[r].last_partition = (span.end - 1) / kPartitionTokens + 1;
  }
  GroupRuns();
  GroupSingles();
  max_members_ = 0;
  for (const WorkGroup& group : groups_) {
    max_members_ = std::max(max_members_, group.num_members);
  }
  CutItems(num_threads);
  CountPieces();
  rows_ = {};
}

uint32_t WorkSplit::RowsPerGroup() const {
  const size_t row_bytes =
      sizeof(float) * (shape_.k_dim + size_t{2} * ValueStride(shape_.v_dim));
  const size_t query_rows =
      std::min<size_t>(kMaxQueryRows, kMaxRowBytes / row_bytes);
  const uint32_t heads = shape_.num_heads / shape_.num_kv_heads;
  return std::max<uint32_t>(1, static_cast<uint32_t>(query_rows) / heads);
}

// Runs of consecutive positions become groups; rows alone go to singles_.
void WorkSplit::GroupRuns() {
  const uint32_t max_rows = RowsPerGroup();
  for (uint32_t i = 0; i < rows_.size();) {
    uint32_t end = i + 1;
    while (end < rows_.size() && end - i < max_rows &&
           rows_[end].blocks == rows_[i].blocks &&
           rows_[end].position == rows_[end - 1].position + 1) {
      ++end;
    }
    if (end == i + 1) {
      singles_.push_back(i);
    } else {
      WorkGroup group;
      group.first_member = static_cast<uint32_t>(members_.size());
      group.num_members = end - i;
      group.first_partition = row_work_[i].first_partition;
      group.last_partition = row_work_[end - 1].last_partition;
      for (uint32_t r = i; r < end; ++r) members_.push_back(r);
      groups_.push_back(group);
    }
    i = end;
  }
}

bool WorkSplit::SeesAll(uint32_t row, uint32_t partition) const {
  const VisibleSpan span = Visible(shape_, rows_[row]);
  return span.begin <= partition * kPartitionTokens &&
         span.end >= (partition + 1) * kPartitionTokens;
}

bool WorkSplit::SameBlocks(uint32_t a, uint32_t b, uint32_t partition) const {
  if (!SeesAll(a, partition) || !SeesAll(b, partition)) return false;
  const uint32_t count = kPartitionTokens / shape_.block_tokens;
  std::byte* const* blocks = rows_[a].blocks + size_t{partition} * count;
  return std::equal(blocks, blocks + count,
                    rows_[b].blocks + size_t{partition} * count);
}

void WorkSplit::GroupSingles() {
  if (singles_.empty()) return;
  uint32_t first = row_work_[singles_[0]].first_partition;
  uint32_t last = 0;
  for (uint32_t row : singles_) {
    first = std::min(first, row_work_[row].first_partition);
    last = std::max(last, row_work_[row].last_partition);
  }
  size_t open_begin = groups_.size();
  for (uint32_t p = first; p < last; ++p) GroupPartition(p, open_begin);
}

void WorkSplit::GroupPartition(uint32_t partition, size_t& open_begin) {
  const uint32_t max_rows = RowsPerGroup();
  const size_t open_end = groups_.size();
  taken_.assign(singles_.size(), false);
  for (size_t i = 0; i < singles_.size(); ++i) {
    const RowWork& work = row_work_[singles_[i]];
    if (taken_[i] || partition < work.first_partition ||
        partition >= work.last_partition) {
      continue;
    }
    cluster_.assign(1, singles_[i]);
    for (size_t j = i + 1; j < singles_.size() && cluster_.size() < max_rows;
         ++j) {
      if (!taken_[j] && SameBlocks(singles_[i], singles_[j], partition)) {
        taken_[j] = true;
        cluster_.push_back(singles_[j]);
      }
    }
    bool longer = false;
    for (size_t g = open_begin; g < open_end && !longer; ++g) {
      WorkGroup& group = groups_[g];
      longer = group.last_partition == partition &&
               group.num_members == cluster_.size() &&
               std::equal(cluster_.begin(), cluster_.end(),
                          members_.begin() + group.first_member);
      if (longer) ++group.last_partition;
    }
    if (longer) continue;
    WorkGroup group;
    group.first_member = static_cast<uint32_t>(members_.size());
    group.num_members = static_cast<uint32_t>(cluster_.size());
    group.first_partition = partition;
    group.last_partition = partition + 1;
    group.full = cluster_.size() > 1;
    members_.insert(members_.end(), cluster_.begin(), cluster_.end());
    groups_.push_back(group);
  }
  // Groups that ended before this partition are never longer again.
  while (open_begin < open_end &&
         groups_[open_begin].last_partition <= partition) {
    ++open_begin;
  }
}

uint64_t WorkSplit::Cost(const WorkGroup& group, uint32_t first,
                         uint32_t last) const {
  TokenPos from = first * kPartitionTokens;
  TokenPos to = last * kPartitionTokens;
  if (!group.full) {
    const uint32_t front = members_[group.first_member];
    const uint32_t back = members_[group.first_member + group.num_members - 1];
    from = std::max(from, Visible(shape_, rows_[front]).begin);
    to = std::min(to, Visible(shape_, rows_[back]).end);
  }
  const uint64_t heads = shape_.num_heads / shape_.num_kv_heads;
  return uint64_t{to - from} * (group.num_members * heads + kReadCost);
}

void WorkSplit::CutItems(uint32_t num_threads) {
  uint64_t total = 0;
  for (const WorkGroup& group : groups_) {
    total += Cost(group, group.first_partition, group.last_partition);
  }
  total *= shape_.num_kv_heads;
  const uint64_t target =
      std::max<uint64_t>(1, total / (uint64_t{num_threads} * kItemsPerThread));
  items_.clear();
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    WorkGroup& group = groups_[g];
    const uint32_t partitions = group.last_partition - group.first_partition;
    const uint64_t cost =
        Cost(group, group.first_partition, group.last_partition);
    if (num_threads > 1 && cost > target) {
      group.num_pieces = static_cast<uint32_t>(
          std::min<uint64_t>(partitions, (cost + target - 1) / target));
    }
    for (uint32_t i = 0; i < group.num_pieces; ++i) {
      const uint32_t first =
          group.first_partition + partitions * i / group.num_pieces;
      const uint32_t last =
          group.first_partition + partitions * (i + 1) / group.num_pieces;
      for (uint32_t h = 0; h < shape_.num_kv_heads; ++h) {
        items_.push_back({g, h, first, last, Cost(group, first, last)});
      }
    }
  }
  std::stable_sort(
      items_.begin(), items_.end(),
      [](const WorkItem& a, const WorkItem& b) { return a.cost > b.cost; });
}

void WorkSplit::CountPieces() {
  for (const WorkGroup& group : groups_) {
    for (uint32_t m = 0; m < group.num_members; ++m) {
      row_work_[members_[group.first_member + m]].pieces += group.num_pieces;
    }
  }
  num_records_ = 0;
  for (RowWork& row : row_work_) {
    if (row.pieces <= 1) continue;
    row.first_record = num_records_;
    num_records_ +=
        size_t{row.last_partition - row.first_partition} * shape_.num_heads;
  }
}

}  // namespace everwarm::kernels
