// Makes records of sessions durable; part of the writer (block_writer.h).
//
// As a block: a temporary name, a sync, a rename, a sync of the directory. What
// a record replaces goes only afterwards. A record that cannot be kept is a
// preference lost, a warning and nothing else.
#ifndef EVERWARM_STORE_SESSION_WRITER_H_
#define EVERWARM_STORE_SESSION_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/repeated_warning.h"
#include "cache/session_record.h"
#include "store/disk_budget.h"
#include "store/store_state.h"

namespace everwarm::store {

// Threads: as said at each method.
class SessionWriter {
 public:
  struct Pending {
    cache::SessionRecord record;
    std::vector<cache::RecordId> replaces;
  };

  SessionWriter(std::shared_ptr<StoreState> state, DiskBudget* budget);

  // Under the state's mutex: the queue. One that waits and is replaced is
  // never written.
  void Add(cache::SessionRecord record, std::vector<cache::RecordId> replaces)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  bool empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    return queue_.empty();
  }
  std::vector<Pending> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { queue_.clear(); }

  // The writer task. Blocks of `keep` are not evicted for it. Stops between two
  // calls to the disk when the store closes, as a process that is killed.
  void Write(std::vector<Pending> sessions,
             const absl::flat_hash_set<NodeId>& keep);
  // The writer task. So many cannot be written.
  void Refuse(size_t sessions, const absl::Status& why);

 private:
  // One record on its way.
  struct Item {
    cache::RecordId id{};
    std::vector<cache::RecordId> replaces;
    std::string temp_path;
    uint64_t reserved = 0;
    uint64_t allocated = 0;
    bool renamed = false;
    absl::Status status;
  };
  // It is there already: it was used again.
  bool Touch(const cache::RecordId& id);
  absl::Status WriteTemp(Item& item, const cache::SessionRecord& record,
                         const absl::flat_hash_set<NodeId>& keep);
  // False when the store closes before they are durable.
  bool Rename(std::vector<Item>& items);
  void Commit(const Item& item);
  void Undo(const Item& item);
  void Remove(const std::vector<cache::RecordId>& records);

  const std::shared_ptr<StoreState> state_;
  DiskBudget& budget_;
  std::vector<Pending> queue_ ABSL_GUARDED_BY(state_->mutex);
  uint64_t next_temp_ = 0;
  RepeatedWarning not_kept_;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_SESSION_WRITER_H_
