// Makes queued blocks durable, batch by batch, and does everything else that
// changes the directory: one task at a time, so that these never meet.
//
// A batch: each block to a temporary name, each file synced, each renamed, then
// one sync of the directory; only then is any of them announced. Whatever fails
// leaves nothing under the final name. A store that closes stops between two
// calls to the disk, as a process that is killed: what is left is dealt with at
// the next start.
#ifndef EVERWARM_STORE_BLOCK_WRITER_H_
#define EVERWARM_STORE_BLOCK_WRITER_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/repeated_warning.h"
#include "cache/tier.h"
#include "store/aligned_buffer.h"
#include "store/disk_budget.h"
#include "store/session_writer.h"
#include "store/store_state.h"

namespace everwarm::store {

// Threads: as said at each method; Run() on the executor.
class BlockWriter : public std::enable_shared_from_this<BlockWriter> {
 public:
  explicit BlockWriter(std::shared_ptr<StoreState> state);

  // Any thread. As Tier::Store().
  absl::Status Enqueue(cache::StoreRequest request);
  // Any thread. As Tier::TakeBackStores().
  std::vector<BlockKey> TakeBack();
  // Any thread. Drops what is queued of the key, and undoes what runs.
  void Cancel(const BlockKey& key);

  // Any thread. The file left the index: its bytes are in limbo. `why` is OK
  // for a plain removal; else the file is set aside.
  void QueueRemoval(const FileId& id, uint64_t bytes, absl::Status why);
  void QueueTouch(const FileId& id, Clock::Wall time);
  // Any thread. As SessionKeeper::Keep(). Written before the blocks that are
  // queued then, so that no block of a session is without its record.
  void QueueSession(cache::SessionRecord record,
                    std::vector<cache::RecordId> replaces);
  // Any thread. What was read of this entry's file cannot be used: the entry
  // leaves the index, and a damaged file is set aside. False, and nothing, when
  // it is another entry by now.
  bool GiveUp(const FileId& id, uint64_t generation, const absl::Status& why);

  // Any thread. Drops what is queued, for good.
  void Clear();
  // Adds its part of the picture.
  void AddStats(cache::TierStats& stats) const;

 private:
  struct PendingStore {
    cache::StoreRequest request;
    // Of the file.
    uint64_t bytes = 0;
    // Guarded by the state's mutex: Remove() came while it ran.
    bool cancelled = false;
  };
  struct Removal {
    FileId id;
    uint64_t bytes = 0;
    absl::Status why;
  };
  struct Touch {
    FileId id;
    Clock::Wall time;
  };
  // One block on its way through a batch.
  struct Item {
    std::shared_ptr<PendingStore> store;
    std::string temp_path;
    std::string final_path;
    std::unique_ptr<File> file;
    uint64_t reserved = 0;
    uint64_t allocated = 0;
    bool renamed = false;
    absl::Status status;
  };
  struct Work {
    std::vector<Removal> removals;
    std::vector<Touch> touches;
    std::vector<SessionWriter::Pending> sessions;
    std::vector<Item> items;
    // Nothing to do for these but to let go of their blocks.
    std::vector<std::shared_ptr<PendingStore>> finished;
    // Parents of all that is queued: evicting them would orphan it.
    absl::flat_hash_set<NodeId> keep;
  };

  void ScheduleLocked(bool& schedule)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  void Schedule();
  void Run();
  Work TakeWork();
  void TakeBatch(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);

  // What there is to do in a directory that is not ours any more.
  void Refuse(Work& work, const absl::Status& why);
  void Remove(const std::vector<Removal>& removals);
  void SetTimes(const std::vector<Touch>& touches);

  void WriteBatch(Work& work);
  // False when the store closes before they are on the disk.
  bool WriteItems(Work& work);
  void RememberRoom(const BlockKey& key, const absl::Status& status);
  absl::Status WriteTemp(Item& item, const absl::flat_hash_set<NodeId>& keep);
  absl::Status WriteFile(Item& item, absl::Span<const ConstBytes> bytes);
  absl::Status SyncItem(Item& item);
  void RenameItem(Item& item);
  void SyncDirectory(std::vector<Item>& items);
  // Announces what is durable, and undoes what was cancelled or failed.
  void Commit(std::vector<Item>& items);
  void CommitItem(const Item& item)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  void Undo(const Item& item);
  bool Cancelled(const Item& item) const;

  const std::shared_ptr<StoreState> state_;

  // Guarded by state_->mutex.
  std::deque<std::shared_ptr<PendingStore>> queue_
      ABSL_GUARDED_BY(state_->mutex);
  std::vector<std::shared_ptr<PendingStore>> running_
      ABSL_GUARDED_BY(state_->mutex);
  std::vector<Removal> removals_ ABSL_GUARDED_BY(state_->mutex);
  std::vector<Touch> touches_ ABSL_GUARDED_BY(state_->mutex);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(state_->mutex) = 0;
  bool scheduled_ ABSL_GUARDED_BY(state_->mutex) = false;

  // Writer task only.
  DiskBudget budget_;
  // Its queue is guarded by state_->mutex.
  SessionWriter sessions_;
  AlignedBuffer header_page_;
  // A tail is packed into this.
  AlignedBuffer bounce_;
  uint64_t next_temp_ = 0;
  // Blocks for which there was no room. What continues one of them would be of
  // no use, and must not evict its own ancestors.
  absl::flat_hash_set<BlockKey> no_room_;
  RepeatedWarning not_stored_;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_BLOCK_WRITER_H_
