// What the parts of a BlockStore share. Internal to store/.
#ifndef EVERWARM_STORE_STORE_STATE_H_
#define EVERWARM_STORE_STORE_STATE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cache/tier.h"
#include "store/block_index.h"
#include "store/env.h"
#include "store/store_options.h"

namespace everwarm::store {

// The directory of another fingerprint.
struct ForeignDir {
  std::string path;
  // Parents of its files are known. Writer task only.
  bool headers_read = false;
};

// Threads:  members above `mutex` are constant once Open() has returned, but
//           for those that say otherwise.
// Order:    `mutex` is the only lock here; no file is touched, no block share
//           dropped and nobody called back while it is held.
struct StoreState {
  StoreState(StoreOptions store_options, StoreParts store_parts);

  const StoreOptions options;
  const StoreParts parts;
  const std::string own_dir;
  const std::string damaged_dir;
  // Of this store alone, in the names of its temporary files: not even a store
  // that should not be there uses the same ones.
  const std::string temp_stem;
  // Open(), then the writer task.
  std::unique_ptr<FileLock> directory_lock;
  // DirIndex d > 0 is foreign[d - 1].
  std::vector<ForeignDir> foreign;

  mutable Mutex mutex;
  CondVar task_ended;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  size_t running_tasks ABSL_GUARDED_BY(mutex) = 0;
  BlockIndex index ABSL_GUARDED_BY(mutex);
  // Its file is being removed for room: still an entry, as it may stay.
  std::optional<FileId> evicting ABSL_GUARDED_BY(mutex);
  // Only the counters "since the start" are kept here.
  cache::TierStats counters ABSL_GUARDED_BY(mutex);
  std::vector<cache::TierEvent> events ABSL_GUARDED_BY(mutex);
  std::function<void()> wake_up ABSL_GUARDED_BY(mutex);

  std::string PathOf(const FileId& id) const;
  // Of a file in own_dir that is being written; `rest` tells it from others.
  std::string TempPath(std::string_view rest) const;
  // Between two calls to the disk: whatever is left to do is left undone.
  bool IsClosing() const ABSL_LOCKS_EXCLUDED(mutex);
  // Requires: the group is one of the options'.
  const GroupScheme& SchemeOf(const cache::BlockIdentity& identity) const {
    return SchemeAt(options.groups[identity.key.group], identity.start);
  }
  // The entry was used at `used`. True when its file's time is to follow: the
  // caller sets it to `now`. Requires: the index has the entry.
  bool MarkUsed(const FileId& id, Clock::Wall used, Clock::Wall now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void AddEvents(std::vector<cache::TierEvent> new_events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // After AddEvents(), without the lock.
  void WakeUp() ABSL_LOCKS_EXCLUDED(mutex);
};

// Whether a file that could not be read for this reason is of no use for good:
// damaged, or under its name is a directory, a FIFO, or another version.
bool IsDamage(const absl::Status& status);

// Alive while a task runs; a store waits for these before it goes away.
class RunningTask {
 public:
  explicit RunningTask(StoreState& state);
  ~RunningTask();
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;

  // False: the store is closing or gone, touch nothing.
  bool ok() const { return ok_; }

 private:
  StoreState& state_;
  bool ok_ = false;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_STORE_STATE_H_
