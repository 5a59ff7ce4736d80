// Who computes what in a step: rows that share KV form groups, and groups are
// cut into items of about equal cost. Pure bookkeeping: what is computed per
// row does not depend on it (kernels/numerics.h).
//
// Two kinds of rows share reads of KV: consecutive positions of one sequence (a
// prompt), and single rows of several sequences whose tables name the same
// blocks for a whole partition (a common prefix).
//
// Threads: none; built by one thread, read by many.
#ifndef EVERWARM_KERNELS_WORK_SPLIT_H_
#define EVERWARM_KERNELS_WORK_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/partition.h"

namespace everwarm::kernels {

struct WorkGroup {
  // Rows of the call, WorkSplit::members [first_member, + num_members).
  uint32_t first_member = 0;
  uint32_t num_members = 0;
  uint32_t first_partition = 0;
  uint32_t last_partition = 0;  // exclusive
  // Every member sees every position of these partitions. Otherwise members are
  // consecutive positions of one sequence.
  bool full = false;
  uint32_t num_pieces = 1;  // items per KV head
};

struct WorkItem {
  uint32_t group = 0;
  uint32_t kv_head = 0;
  uint32_t first_partition = 0;
  uint32_t last_partition = 0;  // exclusive
  uint64_t cost = 0;
};

struct RowWork {
  uint32_t first_partition = 0;
  uint32_t last_partition = 0;  // exclusive
  // Items per KV head that contribute. One: it folds as it goes. More: each
  // leaves its sums as records, and the last to finish folds them.
  uint32_t pieces = 0;
  // First of its records, one per partition and query head.
  size_t first_record = 0;

  size_t Record(uint32_t num_heads, uint32_t partition, uint32_t head) const {
    return first_record + size_t{partition - first_partition} * num_heads +
           head;
  }
};

// Positions that a row sees.
inline VisibleSpan Visible(const AttentionShape& shape,
                           const AttentionRow& row) {
  return {FirstVisible(shape, row.position), row.position + 1};
}

// Keeps its memory from step to step.
class WorkSplit {
 public:
  void Build(const AttentionShape& shape, absl::Span<const AttentionRow> rows,
             uint32_t num_threads);

  const std::vector<WorkGroup>& groups() const { return groups_; }
  const std::vector<uint32_t>& members() const { return members_; }
  // Long ones first.
  const std::vector<WorkItem>& items() const { return items_; }
  const std::vector<RowWork>& rows() const { return row_work_; }
  size_t num_records() const { return num_records_; }
  // The most that a group has.
  uint32_t max_members() const { return max_members_; }

 private:
  uint32_t RowsPerGroup() const;
  void GroupRuns();
  void GroupSingles();
  // Clusters singles_ by their blocks of a partition, into groups from `begin`
  // on: those of the partition before that still hold are made longer.
  void GroupPartition(uint32_t partition, size_t& open_begin);
  bool SameBlocks(uint32_t a, uint32_t b, uint32_t partition) const;
  bool SeesAll(uint32_t row, uint32_t partition) const;
  uint64_t Cost(const WorkGroup& group, uint32_t first, uint32_t last) const;
  void CutItems(uint32_t num_threads);
  void CountPieces();

  AttentionShape shape_;
  absl::Span<const AttentionRow> rows_;
  std::vector<WorkGroup> groups_;
  std::vector<uint32_t> members_;
  std::vector<WorkItem> items_;
  std::vector<RowWork> row_work_;
  std::vector<uint32_t> singles_;
  std::vector<uint32_t> cluster_;
  std::vector<bool> taken_;
  size_t num_records_ = 0;
  uint32_t max_members_ = 0;
};

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_WORK_SPLIT_H_
