// Keeps the store's promises about space: the cap, and what stays free on the
// file system.
#ifndef EVERWARM_STORE_DISK_BUDGET_H_
#define EVERWARM_STORE_DISK_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "store/store_state.h"

namespace everwarm::store {

// Beyond a file's own bytes: what the file system may add to it and to the
// directory (an extent block, a directory block).
inline constexpr uint64_t kMetadataBytes = 8192;

// Threads: the writer task, or Open().
class DiskBudget {
 public:
  explicit DiskBudget(StoreState* state) : state_(*state) {}

  // Evicts until `bytes` more fit, and counts them as taken. Blocks of `keep`
  // stay: what is being written would be of no use without them.
  // Errors: kResourceExhausted. Nothing is evicted where that would not do.
  absl::Status Reserve(uint64_t bytes, const absl::flat_hash_set<NodeId>& keep);
  void Release(uint64_t bytes);
  // Whether Reserve() would succeed without evicting anything.
  bool Fits(uint64_t bytes);

  // Evicts `bytes`, whatever the counts say: the disk has refused. What cannot
  // be removed stays what it is, an entry that is read and may go another time.
  // Errors: kResourceExhausted; kCancelled, the store is closing.
  absl::Status Evict(uint64_t bytes, const absl::flat_hash_set<NodeId>& keep);

  // Evicts until the cap is kept; after a start with a smaller one.
  void EnforceCap();

  // Directories grow, and new ones come: looks at them again.
  void CountDirectories();

  // Moves a file that cannot be used out of the way, into damaged/, where it
  // still counts. `bytes` are in limbo in the index, or 0 if not counted yet.
  void SetAside(const std::string& path, uint64_t bytes,
                const absl::Status& why);

  // Removes a file whose bytes are in limbo in the index. If it stays it counts
  // as a loose file, and may go another time.
  void RemoveFile(const std::string& path, uint64_t bytes);

  // Removes what came of a write that is given up; nothing for an empty path.
  // If it stays it counts as a loose file, of `bytes` where the disk does not
  // say.
  void Discard(const std::string& path, uint64_t bytes);

 private:
  struct Victim {
    std::string path;
    uint64_t bytes = 0;
    // Nothing for a loose file.
    std::optional<FileId> id;
    uint64_t generation = 0;
  };
  // What an eviction has failed to remove.
  class Refusals {
   public:
    void Add(const Victim& victim);
    const Unremovable& past() const { return past_; }
    bool loose_done() const { return loose_ >= kMostRefusals; }

   private:
    // Then the directory is taken to refuse all of them.
    static constexpr int kMostRefusals = 3;
    Unremovable past_;
    absl::flat_hash_map<DirIndex, int> of_dir_;
    int loose_ = 0;
  };
  // Bytes that are missing for `bytes` more.
  absl::StatusOr<uint64_t> Deficit(uint64_t bytes);
  // Stays in the index, marked where it is an entry, until it is removed.
  std::optional<Victim> ChooseVictim(const absl::flat_hash_set<NodeId>& keep,
                                     const Refusals& refusals);
  absl::Status RemoveVictim(const Victim& victim);
  // The file of an entry is gone: so is the entry, and that is announced.
  void ForgetVictim(const Victim& victim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void ReadForeignHeaders(DirIndex dir);
  absl::Status MakeDamagedDir();

  StoreState& state_;
  uint64_t set_aside_count_ = 0;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_DISK_BUDGET_H_
