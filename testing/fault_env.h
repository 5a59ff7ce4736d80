// A disk in memory that fails, stalls, fills up and loses power when the test
// says so.
//
// Bytes are durable after File::Sync(), names after SyncDir(): PowerLoss()
// keeps just that, or also a random part of the rest.
//
// Threads: any; a stalled call waits on its own thread until Release().
// Link:    ew_store.
#ifndef EVERWARM_TESTING_FAULT_ENV_H_
#define EVERWARM_TESTING_FAULT_ENV_H_

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "store/env.h"

namespace everwarm::store {

class FaultEnv final : public Env {
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

  explicit FaultEnv(const Clock* clock) : clock_(clock) {}

  // --- What goes wrong ---

  // The `nth` call of the kind from now (1 is the next) returns `status`, and
  // so do the `times - 1` after it. A write that fails leaves half of its
  // bytes.
  void FailCall(Op op, int nth, absl::Status status, int times = 1) {
    MutexLock lock(mutex_);
    const int first = counts_[Index(op)] + nth;
    faults_.push_back({op, first, first + times, std::move(status)});
  }
  void ClearFaults() {
    MutexLock lock(mutex_);
    faults_.clear();
    crash_at_.reset();
  }
  // The `nth` call of any kind from now does not happen, nor does any after it,
  // until PowerLoss().
  void CrashAtCall(int nth) {
    MutexLock lock(mutex_);
    crash_at_ = total_ + nth;
  }
  bool crashed() const {
    MutexLock lock(mutex_);
    return crash_at_.has_value() && total_ >= *crash_at_;
  }
  void Stall(Op op) {
    MutexLock lock(mutex_);
    stalled_.insert(op);
  }
  void Release(Op op) {
    MutexLock lock(mutex_);
    stalled_.erase(op);
    changed_.NotifyAll();
  }
  // Until a call of the kind is stalled.
  void WaitForStalled(Op op) {
    MutexLock lock(mutex_);
    while (waiting_[Index(op)] == 0) {
      changed_.Wait(mutex_);
    }
  }
  // Bytes that the disk holds, rounded up for each file to 4 KiB.
  void set_capacity(uint64_t bytes) {
    MutexLock lock(mutex_);
    capacity_ = bytes;
  }

  // The machine comes up again: files that were open are dead, locks are free,
  // what was not synced is lost. With a seed, each unsynced page and each
  // unsynced name is lost or kept by chance.
  void PowerLoss(std::optional<uint64_t> seed = std::nullopt) {
    MutexLock lock(mutex_);
    std::mt19937_64 random(seed.value_or(0));
    const auto keep = [&] { return seed.has_value() && random() % 2 == 0; };
    std::map<std::string, NodePtr> names = durable_;
    for (const auto& [path, node] : live_) {
      const auto old = durable_.find(path);
      if ((old == durable_.end() || old->second != node) && keep()) {
        names[path] = node;
      }
    }
    for (const auto& [path, node] : durable_) {
      if (!live_.contains(path) && keep()) {
        names.erase(path);
      }
    }
    for (const auto& [path, node] : names) {
      Tear(*node, keep);
    }
    live_ = names;
    durable_ = std::move(names);
    locks_.clear();
    faults_.clear();
    crash_at_.reset();
    ++epoch_;
  }

  // --- What the test looks at and prepares ---

  int count(Op op) const {
    MutexLock lock(mutex_);
    return counts_[Index(op)];
  }
  int total_calls() const {
    MutexLock lock(mutex_);
    return total_;
  }
  uint64_t used_bytes() const {
    MutexLock lock(mutex_);
    return UsedBytes();
  }
  // Most that was ever used, since the last call of ResetPeak().
  uint64_t peak_bytes() const {
    MutexLock lock(mutex_);
    return peak_;
  }
  void ResetPeak() {
    MutexLock lock(mutex_);
    peak_ = UsedBytes();
  }
  // All paths, in order; directories too.
  std::vector<std::string> Paths() const {
    MutexLock lock(mutex_);
    std::vector<std::string> paths;
    for (const auto& [path, node] : live_) {
      paths.push_back(path);
    }
    return paths;
  }
  bool Exists(const std::string& path) const {
    MutexLock lock(mutex_);
    return live_.contains(path);
  }
  Bytes Contents(const std::string& path) const {
    MutexLock lock(mutex_);
    return live_.at(path)->data;
  }
  // Puts a durable file there, past all faults.
  void Put(const std::string& path, Bytes contents,
           FileKind kind = FileKind::kRegular) {
    MutexLock lock(mutex_);
    auto node = NewNode(kind);
    node->data = contents;
    node->synced = std::move(contents);
    live_[path] = node;
    durable_[path] = std::move(node);
  }
  void SetTime(const std::string& path, Clock::Wall time) {
    MutexLock lock(mutex_);
    live_.at(path)->modified = time;
  }

  // --- Env ---

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(
      const std::string& path, const OpenOptions&) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kOpen));
    EW_ASSIGN_OR_RETURN(NodePtr node, Find(path));
    if (node->kind != FileKind::kRegular) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": not a regular file"));
    }
    return std::make_unique<Handle>(this, std::move(node), epoch_);
  }
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path,
                                               const OpenOptions&) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kCreate));
    EW_RETURN_IF_ERROR(Find(ParentOf(path)).status());
    if (live_.contains(path)) {
      return absl::AlreadyExistsError(path);
    }
    NodePtr node = NewNode(FileKind::kRegular);
    live_[path] = node;
    return std::make_unique<Handle>(this, std::move(node), epoch_);
  }
  void ReadMany(
      absl::Span<const ReadJob> jobs,
      absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) override {
    for (size_t i = 0; i < jobs.size(); ++i) {
      done(i, jobs[i].file->ReadAt(jobs[i].offset, jobs[i].buffers));
    }
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kRename));
    EW_ASSIGN_OR_RETURN(NodePtr node, Find(from));
    EW_RETURN_IF_ERROR(Find(ParentOf(to)).status());
    if (const auto old = live_.find(to);
        old != live_.end() && old->second->kind == FileKind::kDirectory &&
        node->kind != FileKind::kDirectory) {
      return absl::FailedPreconditionError(absl::StrCat(to, ": directory"));
    }
    live_.erase(from);
    live_[to] = std::move(node);
    return absl::OkStatus();
  }
  absl::Status Unlink(const std::string& path) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kUnlink));
    EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
    if (node->kind == FileKind::kDirectory) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": directory"));
    }
    live_.erase(path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& dir) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kList));
    EW_RETURN_IF_ERROR(Find(dir).status());
    std::vector<std::string> names;
    for (const auto& [path, node] : live_) {
      if (ParentOf(path) == dir) {
        names.push_back(path.substr(dir.size() + 1));
      }
    }
    return names;
  }
  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kStat));
    EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
    return InfoOf(*node);
  }
  absl::Status MakeDir(const std::string& path) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kMakeDir));
    for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
      NodePtr& node = live_[path.substr(0, slash)];
      if (node == nullptr) {
        node = NewNode(FileKind::kDirectory);
      } else if (node->kind != FileKind::kDirectory) {
        return absl::FailedPreconditionError(
            absl::StrCat(path, ": not a directory"));
      }
      if (slash == std::string::npos) {
        return absl::OkStatus();
      }
    }
  }
  absl::Status SyncDir(const std::string& dir) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kSyncDir));
    EW_RETURN_IF_ERROR(Find(dir).status());
    std::erase_if(durable_, [&](const auto& entry) {
      return ParentOf(entry.first) == dir && !live_.contains(entry.first);
    });
    for (const auto& [path, node] : live_) {
      if (ParentOf(path) == dir || path == dir) {
        durable_[path] = node;
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kLock));
    EW_RETURN_IF_ERROR(Find(ParentOf(path)).status());
    if (!locks_.insert(path).second) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": locked"));
    }
    if (!live_.contains(path)) {
      live_[path] = NewNode(FileKind::kRegular);
    }
    return std::make_unique<HeldLock>(this, path, epoch_);
  }
  absl::Status SetModified(const std::string& path, Clock::Wall time) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kSetModified));
    EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
    node->modified = time;
    node->changed = clock_->WallNow();
    return absl::OkStatus();
  }
  absl::StatusOr<SpaceInfo> Space(const std::string&) override {
    MutexLock lock(mutex_);
    EW_RETURN_IF_ERROR(Begin(Op::kSpace));
    const uint64_t used = std::min(UsedBytes(), capacity_);
    return SpaceInfo{capacity_ - used, capacity_};
  }

 private:
  struct Node {
    FileKind kind = FileKind::kRegular;
    uint64_t inode = 0;
    Bytes data;
    Bytes synced;
    Clock::Wall modified;
    Clock::Wall changed;
  };
  using NodePtr = std::shared_ptr<Node>;
  struct Fault {
    Op op;
    int first;
    int end;
    absl::Status status;
  };
  static constexpr size_t kPage = 4096;

  class Handle final : public File {
   public:
    Handle(FaultEnv* env, NodePtr node, uint64_t epoch)
        : env_(*env), node_(std::move(node)), epoch_(epoch) {}

    absl::StatusOr<FileInfo> Stat() const override {
      MutexLock lock(env_.mutex_);
      EW_RETURN_IF_ERROR(env_.Begin(Op::kStat, epoch_));
      return env_.InfoOf(*node_);
    }
    absl::StatusOr<size_t> ReadAt(
        uint64_t offset, absl::Span<const MutableBytes> buffers) override {
      MutexLock lock(env_.mutex_);
      EW_RETURN_IF_ERROR(env_.Begin(Op::kRead, epoch_));
      size_t done = 0;
      for (const MutableBytes& buffer : buffers) {
        const size_t at = std::min(offset + done, node_->data.size());
        const size_t bytes = std::min(buffer.size(), node_->data.size() - at);
        std::copy_n(node_->data.begin() + static_cast<ptrdiff_t>(at), bytes,
                    buffer.data());
        done += bytes;
      }
      return done;
    }
    absl::Status WriteAt(uint64_t offset,
                         absl::Span<const ConstBytes> buffers) override {
      MutexLock lock(env_.mutex_);
      Bytes bytes;
      for (const ConstBytes& buffer : buffers) {
        bytes.insert(bytes.end(), buffer.begin(), buffer.end());
      }
      absl::Status status = env_.Begin(Op::kWrite, epoch_);
      if (status.ok() && !env_.Fits(*node_, offset + bytes.size())) {
        status = absl::ResourceExhaustedError("no space left");
      }
      if (!status.ok()) {
        bytes.resize(bytes.size() / 2 / kPage * kPage);
        if (env_.Dead(epoch_) || !env_.Fits(*node_, offset + bytes.size())) {
          return status;
        }
      }
      Bytes& data = node_->data;
      data.resize(std::max(data.size(), offset + bytes.size()));
      std::copy(bytes.begin(), bytes.end(),
                data.begin() + static_cast<ptrdiff_t>(offset));
      node_->modified = node_->changed = env_.clock_->WallNow();
      env_.peak_ = std::max(env_.peak_, env_.UsedBytes());
      return status;
    }
    absl::Status Sync() override {
      MutexLock lock(env_.mutex_);
      EW_RETURN_IF_ERROR(env_.Begin(Op::kSync, epoch_));
      node_->synced = node_->data;
      return absl::OkStatus();
    }

   private:
    FaultEnv& env_;
    const NodePtr node_;
    const uint64_t epoch_;
  };

  class HeldLock final : public FileLock {
   public:
    HeldLock(FaultEnv* env, std::string path, uint64_t epoch)
        : env_(*env), path_(std::move(path)), epoch_(epoch) {}
    ~HeldLock() override {
      MutexLock lock(env_.mutex_);
      if (epoch_ == env_.epoch_) {
        env_.locks_.erase(path_);
      }
    }

   private:
    FaultEnv& env_;
    const std::string path_;
    const uint64_t epoch_;
  };

  static size_t Index(Op op) { return static_cast<size_t>(op); }
  static std::string ParentOf(const std::string& path) {
    return path.substr(0, path.rfind('/'));
  }

  // Counts the call, stalls it, and says whether it happens.
  absl::Status Begin(Op op, std::optional<uint64_t> epoch = std::nullopt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int number = ++counts_[Index(op)];
    ++total_;
    while (stalled_.contains(op)) {
      ++waiting_[Index(op)];
      changed_.NotifyAll();
      changed_.Wait(mutex_);
      --waiting_[Index(op)];
    }
    if (Dead(epoch.value_or(epoch_))) {
      return absl::UnavailableError("power is off");
    }
    for (const Fault& fault : faults_) {
      if (fault.op == op && number >= fault.first && number < fault.end) {
        return fault.status;
      }
    }
    return absl::OkStatus();
  }
  bool Dead(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return epoch != epoch_ || (crash_at_.has_value() && total_ >= *crash_at_);
  }
  absl::StatusOr<NodePtr> Find(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = live_.find(path);
    if (found == live_.end()) {
      return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    }
    return found->second;
  }
  NodePtr NewNode(FileKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->inode = ++next_inode_;
    node->modified = node->changed = clock_->WallNow();
    return node;
  }
  static uint64_t Allocated(size_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
  }
  FileInfo InfoOf(const Node& node) const {
    FileInfo info;
    info.kind = node.kind;
    info.size = node.data.size();
    info.allocated =
        node.kind == FileKind::kDirectory ? kPage : Allocated(info.size);
    info.device = 1;
    info.inode = node.inode;
    info.modified = node.modified;
    info.changed = node.changed;
    return info;
  }
  uint64_t UsedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    uint64_t used = 0;
    for (const auto& [path, node] : live_) {
      used += InfoOf(*node).allocated;
    }
    return used;
  }
  bool Fits(const Node& node, size_t new_size) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t old_bytes = Allocated(node.data.size());
    const uint64_t new_bytes = std::max(old_bytes, Allocated(new_size));
    return UsedBytes() - old_bytes + new_bytes <= capacity_;
  }
  template <typename Keep>
  static void Tear(Node& node, Keep keep) {
    if (node.kind != FileKind::kRegular || node.data == node.synced) {
      return;
    }
    Bytes after = node.synced;
    if (keep()) {
      after.resize(node.data.size());
    }
    for (size_t at = 0; at < std::min(after.size(), node.data.size());
         at += kPage) {
      if (keep()) {
        const size_t bytes =
            std::min({kPage, after.size() - at, node.data.size() - at});
        std::memcpy(after.data() + at, node.data.data() + at, bytes);
      }
    }
    node.data = after;
    node.synced = std::move(after);
  }

  const Clock* const clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, NodePtr> live_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, NodePtr> durable_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> locks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::set<Op> stalled_ ABSL_GUARDED_BY(mutex_);
  std::array<int, static_cast<size_t>(Op::kCount)> counts_
      ABSL_GUARDED_BY(mutex_){};
  std::array<int, static_cast<size_t>(Op::kCount)> waiting_
      ABSL_GUARDED_BY(mutex_){};
  std::optional<int> crash_at_ ABSL_GUARDED_BY(mutex_);
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_inode_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_) = uint64_t{1} << 40;
};

}  // namespace everwarm::store

#endif  // EVERWARM_TESTING_FAULT_ENV_H_
