#include "testing/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace everwarm::store {
namespace {

constexpr size_t kPage = 4096;
// Names that fit in one page of a directory; a block's name has 70 bytes.
constexpr size_t kNamesInPage = 48;

std::string ParentOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// What the paths of all that is below a directory begin with.
std::string PrefixOf(const std::string& dir) {
  return dir == "/" ? dir : dir + "/";
}

uint64_t RoundedUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Puts `bytes` there; the file grows to hold them.
void Overwrite(SimDisk::Bytes& file, size_t offset, ConstBytes bytes) {
  file.resize(std::max(file.size(), offset + bytes.size()));
  std::copy(bytes.begin(), bytes.end(),
            file.begin() + static_cast<ptrdiff_t>(offset));
}

}  // namespace

struct SimDisk::Node {
  struct Write {
    size_t offset = 0;
    Bytes bytes;
  };

  uint64_t Allocated() const {
    return kind == FileKind::kDirectory
               ? std::max<size_t>(
                     1, (most_entries + kNamesInPage - 1) / kNamesInPage) *
                     kPage
               : RoundedUp(data.size());
  }
  FileInfo Info() const {
    FileInfo info;
    info.kind = kind;
    info.size = data.size();
    info.allocated = Allocated();
    info.device = 1;
    info.inode = inode;
    info.modified = modified;
    info.changed = changed;
    return info;
  }
  void Sync() {
    for (const Write& write : unsynced) {
      Overwrite(synced, write.offset, write.bytes);
    }
    unsynced.clear();
    synced_modified = modified;
  }
  void LosePower(Unsynced what, std::mt19937_64& random);

  FileKind kind = FileKind::kRegular;
  uint64_t inode = 0;
  // What a reader sees.
  Bytes data;
  // What the disk has for certain, and what it may have besides.
  Bytes synced;
  std::vector<Write> unsynced;
  Clock::Wall modified;
  Clock::Wall synced_modified;
  Clock::Wall changed;
  // Names that it has now; without any it takes no space.
  int names = 0;
  // Of a directory, which does not shrink.
  size_t entries = 0;
  size_t most_entries = 0;
};

void SimDisk::Node::LosePower(Unsynced what, std::mt19937_64& random) {
  const auto chance = [&] { return random() % 2 == 0; };
  const bool torn = what == Unsynced::kTorn;
  const size_t unit = chance() ? 512 : kPage;
  for (const Write& write : unsynced) {
    if (what == Unsynced::kDropped) {
      break;
    }
    const size_t step = torn ? unit : std::max<size_t>(1, write.bytes.size());
    if (chance()) {
      // The new size, before the bytes.
      synced.resize(std::max(synced.size(), write.offset + write.bytes.size()));
    }
    for (size_t at = 0; at < write.bytes.size(); at += step) {
      if (chance()) {
        Overwrite(synced, write.offset + at,
                  ConstBytes(write.bytes)
                      .subspan(at, std::min(step, write.bytes.size() - at)));
      }
    }
  }
  unsynced.clear();
  data = synced;
  if (what == Unsynced::kDropped ||
      (what == Unsynced::kReordered && chance())) {
    modified = synced_modified;
  }
  synced_modified = modified;
}

class SimDisk::Handle final : public File {
 public:
  Handle(SimDisk* disk, NodePtr node, uint64_t epoch)
      : disk_(*disk), node_(std::move(node)), epoch_(epoch) {}

  absl::StatusOr<FileInfo> Stat() const override {
    MutexLock lock(disk_.mutex_);
    EW_RETURN_IF_ERROR(disk_.Begin(Op::kStat, epoch_));
    return node_->Info();
  }
  absl::StatusOr<size_t> ReadAt(
      uint64_t offset, absl::Span<const MutableBytes> buffers) override {
    MutexLock lock(disk_.mutex_);
    return disk_.Read(*node_, offset, buffers, epoch_);
  }
  absl::Status WriteAt(uint64_t offset,
                       absl::Span<const ConstBytes> buffers) override {
    Bytes bytes;
    for (const ConstBytes& buffer : buffers) {
      bytes.insert(bytes.end(), buffer.begin(), buffer.end());
    }
    MutexLock lock(disk_.mutex_);
    return disk_.Write(*node_, offset, std::move(bytes), epoch_);
  }
  absl::Status Sync() override {
    MutexLock lock(disk_.mutex_);
    const absl::Status status = disk_.Begin(Op::kSync, epoch_);
    if (status.ok()) {
      node_->Sync();
    } else if (!disk_.Dead(epoch_)) {
      node_->unsynced.clear();
    }
    return status;
  }

 private:
  SimDisk& disk_;
  const NodePtr node_;
  const uint64_t epoch_;
};

class SimDisk::HeldLock final : public FileLock {
 public:
  HeldLock(SimDisk* disk, std::string path, uint64_t inode, uint64_t epoch)
      : disk_(*disk), path_(std::move(path)), inode_(inode), epoch_(epoch) {}
  ~HeldLock() override {
    MutexLock lock(disk_.mutex_);
    if (epoch_ == disk_.epoch_) {
      disk_.locks_.erase(inode_);
    }
  }
  absl::Status Check() const override {
    MutexLock lock(disk_.mutex_);
    EW_RETURN_IF_ERROR(disk_.Begin(Op::kStat, epoch_));
    EW_ASSIGN_OR_RETURN(const NodePtr node, disk_.Find(path_));
    return node->inode == inode_ ? absl::OkStatus()
                                 : absl::FailedPreconditionError(
                                       absl::StrCat(path_, ": another file"));
  }

 private:
  SimDisk& disk_;
  const std::string path_;
  const uint64_t inode_;
  const uint64_t epoch_;
};

SimDisk::SimDisk(const Clock* clock, uint64_t seed)
    : clock_(clock), random_(seed) {
  MutexLock lock(mutex_);
  root_ = NewNode(FileKind::kDirectory);
}
SimDisk::~SimDisk() = default;

// --- What goes wrong ---

void SimDisk::FailCall(Op op, int nth, absl::Status status, int times) {
  MutexLock lock(mutex_);
  const int first = counts_[static_cast<size_t>(op)] + nth;
  faults_.push_back({op, first, first + times, std::move(status)});
}

void SimDisk::ShortenRead(int nth) {
  MutexLock lock(mutex_);
  short_reads_.insert(counts_[static_cast<size_t>(Op::kRead)] + nth);
}

void SimDisk::SetChances(const Chances& chances) {
  MutexLock lock(mutex_);
  chances_ = chances;
}

void SimDisk::ClearFaults() {
  MutexLock lock(mutex_);
  faults_.clear();
  short_reads_.clear();
  chances_ = {};
  crash_at_.reset();
}

void SimDisk::CrashAtCall(int nth) {
  MutexLock lock(mutex_);
  crash_at_ = total_ + nth;
}

bool SimDisk::crashed() const {
  MutexLock lock(mutex_);
  return crash_at_.has_value() && total_ >= *crash_at_;
}

void SimDisk::Stall(Op op) {
  MutexLock lock(mutex_);
  stalled_.insert(op);
}

void SimDisk::Release(Op op) {
  MutexLock lock(mutex_);
  stalled_.erase(op);
  changed_.NotifyAll();
}

void SimDisk::WaitForStalled(Op op) {
  MutexLock lock(mutex_);
  while (waiting_[static_cast<size_t>(op)] == 0) {
    changed_.Wait(mutex_);
  }
}

void SimDisk::set_capacity(uint64_t bytes) {
  MutexLock lock(mutex_);
  capacity_ = bytes;
}

void SimDisk::Restart(Unsynced unsynced, uint64_t seed) {
  MutexLock lock(mutex_);
  if (unsynced != Unsynced::kKept) {
    std::mt19937_64 random(seed);
    LosePower(unsynced, random);
  }
  locks_.clear();
  faults_.clear();
  short_reads_.clear();
  chances_ = {};
  crash_at_.reset();
  ++epoch_;
}

void SimDisk::LosePower(Unsynced unsynced, std::mt19937_64& random) {
  std::map<std::string, NameStates> after;
  used_ = 0;
  // In order of paths, so that a directory comes before what is in it.
  for (const auto& [path, states] : names_) {
    const NodePtr& node = unsynced == Unsynced::kDropped ? states.front()
                          : unsynced == Unsynced::kTorn
                              ? states.back()
                              : states[random() % states.size()];
    const std::string parent = ParentOf(path);
    if (node == nullptr || !(parent.empty() || after.contains(parent))) {
      continue;
    }
    node->LosePower(unsynced, random);
    node->names = 1;
    used_ += node->Allocated();
    after[path] = {node};
  }
  names_ = std::move(after);
  root_->entries = 0;
  for (const auto& [path, states] : names_) {
    states.back()->entries = 0;
    // It comes after its directory.
    ++Live(ParentOf(path))->entries;
  }
}

// --- What the test looks at and prepares ---

int SimDisk::count(Op op) const {
  MutexLock lock(mutex_);
  return counts_[static_cast<size_t>(op)];
}

int SimDisk::total_calls() const {
  MutexLock lock(mutex_);
  return total_;
}

uint64_t SimDisk::used_bytes() const {
  MutexLock lock(mutex_);
  return used_;
}

uint64_t SimDisk::peak_bytes() const {
  MutexLock lock(mutex_);
  return peak_;
}

void SimDisk::ResetPeak() {
  MutexLock lock(mutex_);
  peak_ = used_;
}

std::vector<std::string> SimDisk::Paths() const {
  MutexLock lock(mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, states] : names_) {
    if (states.back() != nullptr) {
      paths.push_back(path);
    }
  }
  return paths;
}

bool SimDisk::Exists(const std::string& path) const {
  MutexLock lock(mutex_);
  return Live(path) != nullptr;
}

SimDisk::Bytes SimDisk::Contents(const std::string& path) const {
  MutexLock lock(mutex_);
  const NodePtr node = Live(path);
  return node == nullptr ? Bytes() : node->data;
}

void SimDisk::Put(const std::string& path, Bytes contents, FileKind kind) {
  MutexLock lock(mutex_);
  NodePtr node = NewNode(kind);
  node->data = contents;
  node->synced = std::move(contents);
  SetName(path, node);
  names_[path] = {std::move(node)};
}

void SimDisk::FlipBit(const std::string& path, size_t byte, int bit) {
  MutexLock lock(mutex_);
  const NodePtr node = Live(path);
  const auto mask = static_cast<std::byte>(1 << bit);
  node->data.at(byte) ^= mask;
  if (byte < node->synced.size()) {
    node->synced[byte] ^= mask;
  }
}

void SimDisk::SetTime(const std::string& path, Clock::Wall time) {
  MutexLock lock(mutex_);
  const NodePtr node = Live(path);
  node->modified = node->synced_modified = time;
}

// --- Env ---

absl::StatusOr<std::unique_ptr<File>> SimDisk::OpenForRead(
    const std::string& path, const OpenOptions&) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kOpen));
  EW_ASSIGN_OR_RETURN(NodePtr node, Find(path));
  if (node->kind != FileKind::kRegular) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": not a regular file"));
  }
  return std::make_unique<Handle>(this, std::move(node), epoch_);
}

absl::StatusOr<std::unique_ptr<File>> SimDisk::Create(const std::string& path,
                                                      const OpenOptions&) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kCreate));
  EW_RETURN_IF_ERROR(Find(ParentOf(path)).status());
  if (Live(path) != nullptr) {
    return absl::AlreadyExistsError(path);
  }
  NodePtr node = NewNode(FileKind::kRegular);
  SetName(path, node);
  return std::make_unique<Handle>(this, std::move(node), epoch_);
}

void SimDisk::ReadMany(
    absl::Span<const ReadJob> jobs,
    absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    done(i, jobs[i].file->ReadAt(jobs[i].offset, jobs[i].buffers));
  }
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kRename));
  EW_ASSIGN_OR_RETURN(NodePtr node, Find(from));
  EW_RETURN_IF_ERROR(Find(ParentOf(to)).status());
  const bool directory = node->kind == FileKind::kDirectory;
  if (const NodePtr old = Live(to);
      old != nullptr && old->kind == FileKind::kDirectory && !directory) {
    return absl::FailedPreconditionError(absl::StrCat(to, ": directory"));
  }
  SetName(from, nullptr);
  SetName(to, std::move(node));
  if (directory) {
    MoveChildren(from, to);
  }
  return absl::OkStatus();
}

absl::Status SimDisk::Unlink(const std::string& path) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kUnlink));
  EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  if (node->kind == FileKind::kDirectory) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": directory"));
  }
  SetName(path, nullptr);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimDisk::List(const std::string& dir) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kList));
  EW_RETURN_IF_ERROR(Find(dir).status());
  const std::string prefix = PrefixOf(dir);
  std::vector<std::string> names;
  for (auto it = names_.lower_bound(prefix);
       it != names_.end() && absl::StartsWith(it->first, prefix); ++it) {
    if (it->second.back() != nullptr &&
        it->first.find('/', prefix.size()) == std::string::npos) {
      names.push_back(it->first.substr(prefix.size()));
    }
  }
  return names;
}

absl::StatusOr<FileInfo> SimDisk::Stat(const std::string& path) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kStat));
  EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  return node->Info();
}

absl::Status SimDisk::MakeDir(const std::string& path) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kMakeDir));
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const NodePtr node = Live(part);
    if (node == nullptr) {
      SetName(part, NewNode(FileKind::kDirectory));
    } else if (node->kind != FileKind::kDirectory) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": not a directory"));
    }
    if (slash == std::string::npos) {
      return absl::OkStatus();
    }
  }
}

absl::Status SimDisk::SyncDir(const std::string& dir) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kSyncDir));
  EW_RETURN_IF_ERROR(Find(dir).status());
  const std::string prefix = PrefixOf(dir);
  for (auto it = names_.lower_bound(prefix);
       it != names_.end() && absl::StartsWith(it->first, prefix);) {
    if (it->first.find('/', prefix.size()) != std::string::npos) {
      ++it;
      continue;
    }
    it->second.erase(it->second.begin(), it->second.end() - 1);
    it = it->second.back() == nullptr ? names_.erase(it) : std::next(it);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> SimDisk::Lock(
    const std::string& path) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kLock));
  EW_RETURN_IF_ERROR(Find(ParentOf(path)).status());
  if (Live(path) == nullptr) {
    SetName(path, NewNode(FileKind::kRegular));
  }
  const NodePtr node = Live(path);
  if (node->kind != FileKind::kRegular) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": not a regular file"));
  }
  if (!locks_.insert(node->inode).second) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": locked"));
  }
  return std::make_unique<HeldLock>(this, path, node->inode, epoch_);
}

absl::Status SimDisk::SetModified(const std::string& path, Clock::Wall time) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kSetModified));
  EW_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  node->modified = time;
  node->changed = clock_->WallNow();
  return absl::OkStatus();
}

absl::StatusOr<SpaceInfo> SimDisk::Space(const std::string&) {
  MutexLock lock(mutex_);
  EW_RETURN_IF_ERROR(Begin(Op::kSpace));
  return SpaceInfo{capacity_ - std::min(used_, capacity_), capacity_};
}

uint64_t SimDisk::UniqueNumber() {
  MutexLock lock(mutex_);
  return ++unique_;
}

// --- Parts ---

absl::Status SimDisk::Begin(Op op, std::optional<uint64_t> epoch) {
  const size_t index = static_cast<size_t>(op);
  const int number = ++counts_[index];
  ++total_;
  while (stalled_.contains(op)) {
    ++waiting_[index];
    changed_.NotifyAll();
    changed_.Wait(mutex_);
    --waiting_[index];
  }
  if (Dead(epoch.value_or(epoch_))) {
    return absl::UnavailableError("power is off");
  }
  return FaultOf(op, number);
}

absl::Status SimDisk::FaultOf(Op op, int number) {
  for (const Fault& fault : faults_) {
    if (fault.op == op && number >= fault.first && number < fault.end) {
      return fault.status;
    }
  }
  switch (op) {
    case Op::kRead:
      return Chance(chances_.read_error) ? absl::UnavailableError("EIO")
                                         : absl::OkStatus();
    case Op::kWrite:
      if (Chance(chances_.no_space)) {
        return absl::ResourceExhaustedError("ENOSPC");
      }
      return Chance(chances_.write_error) ? absl::UnavailableError("EIO")
                                          : absl::OkStatus();
    case Op::kSync:
      return Chance(chances_.sync_error) ? absl::UnavailableError("EIO")
                                         : absl::OkStatus();
    default:
      return Chance(chances_.name_error) ? absl::UnavailableError("EINTR")
                                         : absl::OkStatus();
  }
}

SimDisk::NodePtr SimDisk::Live(const std::string& path) const {
  if (path.empty() || path == "/") {
    return root_;
  }
  const auto found = names_.find(path);
  return found == names_.end() ? nullptr : found->second.back();
}

absl::StatusOr<SimDisk::NodePtr> SimDisk::Find(const std::string& path) const {
  NodePtr node = Live(path);
  if (node == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  return node;
}

SimDisk::NodePtr SimDisk::NewNode(FileKind kind) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->inode = ++next_inode_;
  node->modified = node->synced_modified = node->changed = clock_->WallNow();
  return node;
}

void SimDisk::SetName(const std::string& path, NodePtr node) {
  NameStates& states = names_[path];
  if (states.empty()) {
    states.push_back(nullptr);
  }
  const NodePtr dir = Live(ParentOf(path));
  if (states.back() != nullptr) {
    --states.back()->names;
    used_ -= states.back()->Allocated();
    if (dir != nullptr) {
      --dir->entries;
    }
  }
  if (node != nullptr) {
    ++node->names;
    used_ += node->Allocated();
    if (dir != nullptr) {
      const uint64_t before = dir->Allocated();
      dir->most_entries = std::max(dir->most_entries, ++dir->entries);
      // The root is nobody's.
      used_ += dir == root_ ? 0 : dir->Allocated() - before;
    }
  }
  peak_ = std::max(peak_, used_);
  states.push_back(std::move(node));
}

void SimDisk::MoveChildren(const std::string& from, const std::string& to) {
  const std::string prefix = from + "/";
  std::vector<std::pair<std::string, NodePtr>> children;
  for (auto it = names_.lower_bound(prefix);
       it != names_.end() && absl::StartsWith(it->first, prefix); ++it) {
    if (it->second.back() != nullptr) {
      children.emplace_back(it->first, it->second.back());
    }
  }
  Live(to)->entries = 0;
  for (auto& [path, node] : children) {
    SetName(path, nullptr);
    node->entries = 0;
    SetName(absl::StrCat(to, path.substr(from.size())), std::move(node));
  }
}

absl::Status SimDisk::Write(Node& node, uint64_t offset, Bytes bytes,
                            uint64_t epoch) {
  const auto room = [&] {
    return RoundedUp(
               std::max<size_t>(node.data.size(), offset + bytes.size())) <=
           node.Allocated() + (capacity_ - std::min(used_, capacity_));
  };
  absl::Status status = Begin(Op::kWrite, epoch);
  if (Dead(epoch)) {
    return status;
  }
  if (status.ok() && !room()) {
    status = absl::ResourceExhaustedError("no space left");
  }
  if (!status.ok()) {
    bytes.resize(bytes.size() / 2 / kPage * kPage);
    if (!room()) {
      return status;
    }
  }
  const uint64_t before = node.Allocated();
  Overwrite(node.data, offset, bytes);
  used_ += node.names > 0 ? node.Allocated() - before : 0;
  peak_ = std::max(peak_, used_);
  node.unsynced.push_back({offset, std::move(bytes)});
  node.modified = node.changed = clock_->WallNow();
  return status;
}

absl::StatusOr<size_t> SimDisk::Read(const Node& node, uint64_t offset,
                                     absl::Span<const MutableBytes> buffers,
                                     uint64_t epoch) {
  EW_RETURN_IF_ERROR(Begin(Op::kRead, epoch));
  size_t end = node.data.size();
  if (short_reads_.contains(counts_[static_cast<size_t>(Op::kRead)]) ||
      Chance(chances_.short_read)) {
    end = std::min<size_t>(end, offset + (end - std::min(end, offset)) / 2);
  }
  size_t done = 0;
  for (const MutableBytes& buffer : buffers) {
    const size_t at = std::min<size_t>(offset + done, end);
    const size_t bytes = std::min(buffer.size(), end - at);
    std::copy_n(node.data.begin() + static_cast<ptrdiff_t>(at), bytes,
                buffer.data());
    if (bytes > 0 && Chance(chances_.flipped_read)) {
      buffer[random_() % bytes] ^= static_cast<std::byte>(1 << random_() % 8);
    }
    done += bytes;
  }
  return done;
}

}  // namespace everwarm::store
