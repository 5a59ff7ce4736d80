// A disk in memory with everything that goes wrong on real ones: calls fail or
// stall, the disk fills, bits flip, the process dies or the power goes at any
// call, and what was not synced is lost, torn or kept in any order.
//
// Bytes are durable after File::Sync(), names after SyncDir() of their
// directory, and nothing else is. A Sync() that fails gives up the bytes it was
// to make durable: a later one does not bring them back, as in the kernel.
// Nothing happens by chance unless the test says so; what does follows from the
// seed alone.
//
// Threads: any; a stalled call waits on its own thread until Release().
// Link:    ew_sim_disk.
#ifndef EVERWARM_TESTING_SIM_DISK_H_
#define EVERWARM_TESTING_SIM_DISK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/env.h"

namespace everwarm::store {

class SimDisk final : public Env {
 public:
  enum class Op {
    kOpen,
    kCreate,
    kRead,
    kWrite,
    kSync,
    kRename,
    kUnlink,
    kList,
    kStat,
    kMakeDir,
    kSyncDir,
    kLock,
    kSetModified,
    kSpace,
    kCount,
  };
  using Bytes = std::vector<std::byte>;

  // What is left of what was not synced when the process ends.
  enum class Unsynced {
    // All: only the process died. None of it is any more durable for that.
    kKept,
    // Nothing: the power went.
    kDropped,
    // The power went after all names had reached the disk, but only some
    // pieces (of 512 or 4,096 bytes) of what was written.
    kTorn,
    // The power went after any of the writes, sizes, times and names had
    // reached the disk, whatever their order was.
    kReordered,
  };

  // Of 1,000 calls, so many go wrong by chance.
  struct Chances {
    uint32_t read_error = 0;
    // Fewer bytes than there are.
    uint32_t short_read = 0;
    // One bit of what is read; the disk's own copy is good.
    uint32_t flipped_read = 0;
    uint32_t write_error = 0;
    uint32_t no_space = 0;
    uint32_t sync_error = 0;
    // Creating, renaming, removing, listing, syncing a directory and so on.
    uint32_t name_error = 0;
  };

  explicit SimDisk(const Clock* clock, uint64_t seed = 0);
  ~SimDisk() override;

  // --- What goes wrong ---

  // The `nth` call of the kind from now (1 is the next) returns `status`, and
  // so do the `times - 1` after it. A write that fails leaves half of its
  // bytes.
  void FailCall(Op op, int nth, absl::Status status, int times = 1);
  // The `nth` read from now returns half of what is there.
  void ShortenRead(int nth);
  void SetChances(const Chances& chances);
  // Of all of the above, and of a crash that has not happened.
  void ClearFaults();
  // The `nth` call of any kind from now does not happen, nor does any after it,
  // until Restart().
  void CrashAtCall(int nth);
  bool crashed() const;

  void Stall(Op op);
  void Release(Op op);
  // Until a call of the kind is stalled.
  void WaitForStalled(Op op);

  // Bytes that the disk holds, rounded up for each file to 4 KiB. Directories
  // grow with the names in them, and do not shrink.
  void set_capacity(uint64_t bytes);

  // The next process begins: files that were open are dead, locks are free,
  // faults are gone. With kTorn and kReordered, `seed` decides.
  void Restart(Unsynced unsynced, uint64_t seed = 0);

  // --- What the test looks at and prepares, past all faults ---

  int count(Op op) const;
  int total_calls() const;
  uint64_t used_bytes() const;
  // Most that was ever used, since the last call of ResetPeak().
  uint64_t peak_bytes() const;
  void ResetPeak();
  // All paths, in order; directories too.
  std::vector<std::string> Paths() const;
  bool Exists(const std::string& path) const;
  Bytes Contents(const std::string& path) const;
  // Puts a durable file there.
  void Put(const std::string& path, Bytes contents,
           FileKind kind = FileKind::kRegular);
  // Flips one bit where it lies.
  void FlipBit(const std::string& path, size_t byte, int bit);
  void SetTime(const std::string& path, Clock::Wall time);

  // --- Env ---

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(
      const std::string& path, const OpenOptions& options) override;
  absl::StatusOr<std::unique_ptr<File>> Create(
      const std::string& path, const OpenOptions& options) override;
  void ReadMany(
      absl::Span<const ReadJob> jobs,
      absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Unlink(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& dir) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status MakeDir(const std::string& path) override;
  absl::Status SyncDir(const std::string& dir) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override;
  absl::Status SetModified(const std::string& path, Clock::Wall time) override;
  absl::StatusOr<SpaceInfo> Space(const std::string& path) override;
  // Counts up.
  uint64_t UniqueNumber() override;

 private:
  class Handle;
  class HeldLock;
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  // What a name has meant since its directory was synced: first what it means
  // after a loss of power, last what it means now; null is "no such file".
  using NameStates = std::vector<NodePtr>;
  struct Fault {
    Op op;
    int first;
    int end;
    absl::Status status;
  };

  // Counts the call, stalls it, and says whether it happens.
  absl::Status Begin(Op op, std::optional<uint64_t> epoch = std::nullopt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FaultOf(Op op, int number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Chance(uint32_t of_1000) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return of_1000 > 0 && random_() % 1000 < of_1000;
  }
  bool Dead(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return epoch != epoch_ || (crash_at_.has_value() && total_ >= *crash_at_);
  }
  // Null when there is no such file.
  NodePtr Live(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NodePtr> Find(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NodePtr NewNode(FileKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetName(const std::string& path, NodePtr node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Names below a directory that is renamed.
  void MoveChildren(const std::string& from, const std::string& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(Node& node, uint64_t offset, Bytes bytes, uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<size_t> Read(const Node& node, uint64_t offset,
                              absl::Span<const MutableBytes> buffers,
                              uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The power goes: which of its states a name keeps, and a file's bytes.
  void LosePower(Unsynced unsynced, std::mt19937_64& random)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, NameStates> names_ ABSL_GUARDED_BY(mutex_);
  // Inodes: a file that takes a locked one's name is not locked.
  std::set<uint64_t> locks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::set<int> short_reads_ ABSL_GUARDED_BY(mutex_);
  Chances chances_ ABSL_GUARDED_BY(mutex_);
  std::set<Op> stalled_ ABSL_GUARDED_BY(mutex_);
  std::array<int, static_cast<size_t>(Op::kCount)> counts_
      ABSL_GUARDED_BY(mutex_){};
  std::array<int, static_cast<size_t>(Op::kCount)> waiting_
      ABSL_GUARDED_BY(mutex_){};
  std::optional<int> crash_at_ ABSL_GUARDED_BY(mutex_);
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_inode_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t unique_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_) = uint64_t{1} << 40;
};

}  // namespace everwarm::store

#endif  // EVERWARM_TESTING_SIM_DISK_H_
