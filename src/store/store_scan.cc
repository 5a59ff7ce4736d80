#include "store/store_scan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "store/block_file.h"
#include "store/directory_layout.h"
#include "store/disk_budget.h"
#include "store/durable_dir.h"
#include "store/header_reader.h"
#include "store/own_directory.h"
#include "store/session_file.h"

namespace everwarm::store {
namespace {

// One look at the directory. Lives on the stack of OpenDirectory(); nobody else
// uses the state yet, but its members want their lock.
class Scan {
 public:
  explicit Scan(StoreState& state)
      : state_(state),
        env_(*state.parts.env),
        now_(state.parts.clock->WallNow()),
        budget_(&state) {}

  absl::Status LockDirectory();
  absl::Status Run();
  FoundInDirectory TakeFound();

 private:
  absl::Status ScanTop(const std::string& name);
  absl::Status ScanDamaged();
  // Files whose names are entries' names; what else lies there is dealt with.
  absl::StatusOr<std::vector<BlockKey>> ListEntries(const std::string& dir);
  // What is there; nothing when it has gone meanwhile. All else is an error:
  // what cannot be counted would pass the cap.
  absl::StatusOr<std::optional<FileInfo>> Look(const std::string& path);
  absl::Status ScanOwn();
  void ScanOwnSession(const BlockKey& key,
                      const absl::flat_hash_set<NodeId>& nodes);
  void AddOwn(const BlockKey& key, const FileInfo& info,
              const absl::StatusOr<BlockHeader>& header);
  absl::Status ScanForeign(const std::string& dir);
  // Errors: as List(), but for another's directory that has gone meanwhile.
  absl::StatusOr<std::vector<std::string>> ListNames(const std::string& dir);
  void RemoveTemp(const std::string& path);
  // An own file that is no entry: what cannot be used is set aside, what can
  // perhaps be used another time stays.
  void GiveUp(const std::string& path, const FileInfo& info,
              const absl::Status& why);
  // When all is counted: there may be no room to keep them.
  void SetAsideUnusable();
  absl::Status CheckOwn(const BlockHeader& header) const;
  void AddFixed(uint64_t bytes);
  // Times in the future or before 1970 are as good as none.
  Clock::Wall Sane(Clock::Wall time) const {
    return std::clamp(time, Clock::Wall(), now_);
  }

  struct Unusable {
    std::string path;
    absl::Status why;
  };

  StoreState& state_;
  Env& env_;
  const Clock::Wall now_;
  DiskBudget budget_;
  size_t foreign_files_ = 0;
  std::vector<Unusable> unusable_;
  FoundInDirectory found_;
};

absl::Status Scan::LockDirectory() {
  const std::string& dir = state_.options.dir;
  EW_RETURN_IF_ERROR(MakeDurableDir(env_, dir, state_.parts.logger));
  EW_ASSIGN_OR_RETURN(state_.directory_lock, LockCacheDirectory(env_, dir));
  EW_RETURN_IF_ERROR(MakeOwnDir(state_));
  EW_RETURN_IF_ERROR(CheckIsDirectory(env_, state_.damaged_dir));
  // What a process that was killed had renamed is there, but perhaps not for
  // long; what the scan finds counts as durable.
  return env_.SyncDir(state_.own_dir);
}

absl::Status Scan::Run() {
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      env_.List(state_.options.dir));
  for (const std::string& name : names) {
    EW_RETURN_IF_ERROR(ScanTop(name));
  }
  EW_RETURN_IF_ERROR(ScanOwn());
  budget_.CountDirectories();
  SetAsideUnusable();
  // Names came into damaged/, and it may have grown.
  budget_.CountDirectories();
  budget_.EnforceCap();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FileInfo>> Scan::Look(const std::string& path) {
  absl::StatusOr<FileInfo> info = env_.Stat(path);
  if (absl::IsNotFound(info.status())) {
    return std::nullopt;
  }
  EW_RETURN_IF_ERROR(info.status());
  return *std::move(info);
}

absl::Status Scan::ScanTop(const std::string& name) {
  const std::string path = absl::StrCat(state_.options.dir, "/", name);
  EW_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, Look(path));
  if (!info.has_value()) {
    return absl::OkStatus();
  }
  if (info->kind != FileKind::kDirectory) {
    if (IsTempName(name)) {
      RemoveTemp(path);
    } else {
      AddFixed(info->allocated);
    }
    return absl::OkStatus();
  }
  if (path == state_.damaged_dir) {
    return ScanDamaged();
  }
  if (path != state_.own_dir) {
    if (DigestFromHex(name).has_value()) {
      return ScanForeign(path);
    }
    AddFixed(info->allocated);
  }
  return absl::OkStatus();
}

absl::Status Scan::ScanDamaged() {
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListNames(state_.damaged_dir));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(state_.damaged_dir, "/", name);
    EW_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, Look(path));
    if (!info.has_value()) {
      continue;
    }
    if (info->kind == FileKind::kDirectory) {
      AddFixed(info->allocated);
      continue;
    }
    MutexLock lock(state_.mutex);
    state_.index.AddLoose({path, info->allocated, Sane(info->modified)});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Scan::ListNames(
    const std::string& dir) {
  absl::StatusOr<std::vector<std::string>> names = env_.List(dir);
  if (names.ok()) {
    return names;
  }
  if (absl::IsNotFound(names.status()) && dir != state_.own_dir) {
    return std::vector<std::string>();
  }
  return absl::Status(
      names.status().code(),
      absl::StrCat("what is in ", dir,
                   " is not known, and so not how much of the cap it takes: ",
                   names.status().message()));
}

absl::StatusOr<std::vector<BlockKey>> Scan::ListEntries(
    const std::string& dir) {
  std::vector<BlockKey> keys;
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames(dir));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(dir, "/", name);
    if (const std::optional<BlockKey> key = ParseBlockFileName(name)) {
      keys.push_back(*key);
    } else if (const auto id = ParseSessionFileName(name)) {
      keys.push_back(SessionKey(*id));
    } else if (IsTempName(name)) {
      RemoveTemp(path);
    } else {
      EW_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, Look(path));
      AddFixed(info.has_value() ? info->allocated : 0);
    }
  }
  return keys;
}

absl::Status Scan::ScanOwn() {
  EW_ASSIGN_OR_RETURN(std::vector<BlockKey> keys, ListEntries(state_.own_dir));
  const auto sessions =
      std::partition(keys.begin(), keys.end(),
                     [](const BlockKey& key) { return !IsSession(key); });
  const std::vector<BlockKey> session_keys(sessions, keys.end());
  keys.erase(sessions, keys.end());
  std::vector<std::string> paths;
  paths.reserve(keys.size());
  for (const BlockKey& key : keys) {
    paths.push_back(state_.PathOf({kOwnDir, key}));
  }
  ReadHeaders(env_, paths,
              [&](size_t i, const FileInfo& info,
                  const absl::StatusOr<BlockHeader>& header) {
                if (!header.ok()) {
                  GiveUp(paths[i], info, header.status());
                } else if (const absl::Status own = CheckOwn(*header);
                           !own.ok()) {
                  GiveUp(paths[i], info, own);
                } else {
                  AddOwn(keys[i], info, header);
                }
              });
  absl::flat_hash_set<NodeId> nodes;
  for (const cache::TierEntry& entry : found_.entries) {
    nodes.insert(entry.identity.key.node);
  }
  for (const BlockKey& key : session_keys) {
    ScanOwnSession(key, nodes);
  }
  return absl::OkStatus();
}

void Scan::ScanOwnSession(const BlockKey& key,
                          const absl::flat_hash_set<NodeId>& nodes) {
  const FileId id{kOwnDir, key};
  const std::string path = state_.PathOf(id);
  absl::StatusOr<SessionFile> file = ReadSessionFile(env_, path);
  if (file.ok() && file->fingerprint != state_.options.fingerprint) {
    file = absl::DataLossError("another fingerprint");
  }
  const absl::StatusOr<FileInfo> info = env_.Stat(path);
  if (!file.ok() || !info.ok()) {
    GiveUp(path, info.value_or(FileInfo()), file.status());
    return;
  }
  const std::vector<NodeId>& names = file->record.path;
  if (std::none_of(names.begin(), names.end(),
                   [&](const NodeId& node) { return nodes.contains(node); })) {
    if (const absl::Status status = env_.Unlink(path); !status.ok()) {
      GiveUp(path, *info, absl::UnavailableError(status.message()));
    }
    return;
  }
  const Clock::Wall used = Sane(info->modified);
  {
    MutexLock lock(state_.mutex);
    state_.index.Add({.id = id,
                      .last_used = used,
                      .file_time = info->modified,
                      .bytes = info->allocated});
  }
  found_.sessions.push_back({std::move(file->record), used});
}

absl::Status Scan::CheckOwn(const BlockHeader& header) const {
  const GroupIndex group = header.identity.key.group;
  if (group >= state_.options.groups.size()) {
    return absl::DataLossError(absl::StrCat("no layer group ", group));
  }
  // The key is the file's name, which was checked; nothing else is wanted yet.
  return CheckIdentity(header, state_.options.fingerprint,
                       state_.SchemeOf(header.identity), header.identity);
}

void Scan::AddOwn(const BlockKey& key, const FileInfo& info,
                  const absl::StatusOr<BlockHeader>& header) {
  const Clock::Wall used = Sane(info.modified);
  {
    MutexLock lock(state_.mutex);
    state_.index.Add({.id = {kOwnDir, key},
                      .parent = header->identity.parent,
                      .is_state = header->scheme.geometry.is_state(),
                      .last_used = used,
                      .file_time = info.modified,
                      .bytes = info.allocated});
  }
  found_.entries.push_back({header->identity, used, info.allocated});
}

void Scan::GiveUp(const std::string& path, const FileInfo& info,
                  const absl::Status& why) {
  uint64_t bytes = info.allocated;
  Clock::Wall time = info.modified;
  if (const auto now = env_.Stat(path); now.ok()) {
    bytes = now->allocated;
    time = now->modified;
  }
  if (absl::IsDataLoss(why) || absl::IsFailedPrecondition(why) ||
      absl::IsPermissionDenied(why) || absl::IsNotFound(why)) {
    unusable_.push_back({path, why});
  } else {
    // Another version's, or not readable now.
    state_.parts.logger->warn("{} is left alone: {}", path, why.ToString());
  }
  MutexLock lock(state_.mutex);
  state_.index.AddLoose({path, bytes, Sane(time)});
}

void Scan::SetAsideUnusable() {
  for (const Unusable& file : unusable_) {
    uint64_t bytes = 0;
    {
      MutexLock lock(state_.mutex);
      ++state_.counters.damaged;
      if (const auto loose = state_.index.RemoveLoose(file.path)) {
        bytes = loose->bytes;
      }
    }
    budget_.SetAside(file.path, bytes, file.why);
  }
}

absl::Status Scan::ScanForeign(const std::string& dir) {
  state_.foreign.push_back({dir, false});
  const auto index = static_cast<DirIndex>(state_.foreign.size());
  EW_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys, ListEntries(dir));
  for (const BlockKey& key : keys) {
    const FileId id{index, key};
    EW_ASSIGN_OR_RETURN(const std::optional<FileInfo> info,
                        Look(state_.PathOf(id)));
    if (!info.has_value()) {
      continue;
    }
    if (info->kind != FileKind::kRegular) {
      AddFixed(info->allocated);
      continue;
    }
    ++foreign_files_;
    MutexLock lock(state_.mutex);
    state_.index.Add({.id = id,
                      .last_used = Sane(info->modified),
                      .file_time = info->modified,
                      .bytes = info->allocated});
  }
  return absl::OkStatus();
}

void Scan::RemoveTemp(const std::string& path) {
  const absl::Status status = env_.Unlink(path);
  state_.parts.logger->info("removed what a dead process left: {} ({})", path,
                            status.ToString());
  if (status.ok()) {
    return;
  }
  if (const auto info = env_.Stat(path); info.ok()) {
    if (info->kind == FileKind::kDirectory) {
      AddFixed(info->allocated);
      return;
    }
    MutexLock lock(state_.mutex);
    state_.index.AddLoose({path, info->allocated, Sane(info->modified)});
  }
}

void Scan::AddFixed(uint64_t bytes) {
  MutexLock lock(state_.mutex);
  state_.index.AddFixed(bytes);
}

FoundInDirectory Scan::TakeFound() {
  FoundInDirectory kept;
  kept.entries.reserve(found_.entries.size());
  {
    MutexLock lock(state_.mutex);
    // Keeping the cap may have taken some; nobody knew them yet.
    state_.events.clear();
    for (cache::TierEntry& entry : found_.entries) {
      if (state_.index.Find({kOwnDir, entry.identity.key}) != nullptr) {
        kept.entries.push_back(std::move(entry));
      }
    }
    for (cache::SessionEntry& entry : found_.sessions) {
      if (state_.index.Find({kOwnDir, SessionKey(entry.record.id())}) !=
          nullptr) {
        kept.sessions.push_back(std::move(entry));
      }
    }
    state_.parts.logger->info(
        "{}: {} blocks, {} files of other models or settings, {} of {} used",
        state_.options.dir, kept.entries.size(), foreign_files_,
        FormatBytes(state_.index.bytes()),
        FormatBytes(state_.options.max_bytes));
  }
  std::stable_sort(kept.entries.begin(), kept.entries.end(),
                   [](const cache::TierEntry& a, const cache::TierEntry& b) {
                     return a.identity.start < b.identity.start;
                   });
  return kept;
}

}  // namespace

absl::StatusOr<FoundInDirectory> OpenDirectory(StoreState& state) {
  Scan scan(state);
  EW_RETURN_IF_ERROR(scan.LockDirectory());
  EW_RETURN_IF_ERROR(scan.Run());
  return scan.TakeFound();
}

}  // namespace everwarm::store
