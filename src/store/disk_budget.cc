#include "store/disk_budget.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "store/directory_layout.h"
#include "store/header_reader.h"
#include "store/own_directory.h"
#include "store/session_file.h"

namespace everwarm::store {

absl::StatusOr<uint64_t> DiskBudget::Deficit(uint64_t bytes) {
  EW_ASSIGN_OR_RETURN(const SpaceInfo space,
                      state_.parts.env->Space(state_.options.dir));
  const uint64_t min_free =
      std::min(state_.options.min_free_bytes, space.total_bytes / 10);
  uint64_t deficit = 0;
  if (bytes + min_free > space.free_bytes) {
    deficit = bytes + min_free - space.free_bytes;
  }
  MutexLock lock(state_.mutex);
  const uint64_t used = state_.index.bytes();
  if (used + bytes > state_.options.max_bytes) {
    deficit = std::max(deficit, used + bytes - state_.options.max_bytes);
  }
  return deficit;
}

absl::Status DiskBudget::Reserve(uint64_t bytes,
                                 const absl::flat_hash_set<NodeId>& keep) {
  // Freed bytes may show late, or be taken by somebody else at once: a few
  // rounds, not as many as there are files.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    EW_ASSIGN_OR_RETURN(const uint64_t deficit, Deficit(bytes));
    if (deficit == 0) {
      MutexLock lock(state_.mutex);
      state_.index.Reserve(bytes);
      return absl::OkStatus();
    }
    EW_RETURN_IF_ERROR(Evict(deficit, keep));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", bytes, " bytes in ", state_.options.dir));
}

void DiskBudget::Release(uint64_t bytes) {
  MutexLock lock(state_.mutex);
  state_.index.Release(bytes);
}

bool DiskBudget::Fits(uint64_t bytes) {
  const absl::StatusOr<uint64_t> deficit = Deficit(bytes);
  return deficit.ok() && *deficit == 0;
}

absl::Status DiskBudget::Evict(uint64_t bytes,
                               const absl::flat_hash_set<NodeId>& keep) {
  {
    MutexLock lock(state_.mutex);
    const uint64_t evictable = state_.index.evictable_bytes();
    if (bytes > evictable) {
      return absl::ResourceExhaustedError(absl::StrCat(
          state_.options.dir, ": ", bytes, " bytes are missing and only ",
          evictable, " could be evicted (used ", state_.index.bytes(), ", cap ",
          state_.options.max_bytes, ")"));
    }
  }
  uint64_t freed = 0;
  Refusals refusals;
  absl::Status refused;
  while (freed < bytes) {
    if (state_.IsClosing()) {
      return absl::CancelledError("the store is closing");
    }
    const std::optional<Victim> victim = ChooseVictim(keep, refusals);
    if (!victim.has_value()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          state_.options.dir, ": ", bytes - freed, " bytes are missing, and ",
          refused.ok() ? "all that is left is in use"
                       : absl::StrCat("what could go cannot be removed (",
                                      refused.message(), ")")));
    }
    if (const absl::Status removed = RemoveVictim(*victim); removed.ok()) {
      freed += victim->bytes;
    } else {
      refused = removed;
      refusals.Add(*victim);
    }
  }
  return absl::OkStatus();
}

void DiskBudget::Refusals::Add(const Victim& victim) {
  if (!victim.id.has_value()) {
    ++loose_;
    past_.loose.insert(victim.path);
    return;
  }
  past_.files.insert(*victim.id);
  if (++of_dir_[victim.id->dir] >= kMostRefusals) {
    past_.dirs.insert(victim.id->dir);
  }
}

std::optional<DiskBudget::Victim> DiskBudget::ChooseVictim(
    const absl::flat_hash_set<NodeId>& keep, const Refusals& refusals) {
  for (;;) {
    DirIndex unread = kOwnDir;
    {
      MutexLock lock(state_.mutex);
      const BlockIndex& index = state_.index;
      if (!refusals.loose_done()) {
        if (const auto loose = index.OldestLoose(refusals.past())) {
          return Victim{loose->path, loose->bytes, std::nullopt, 0};
        }
      }
      const std::optional<IndexEntry> leaf =
          index.OldestLeaf(keep, refusals.past());
      if (!leaf.has_value()) {
        return std::nullopt;
      }
      const DirIndex dir = leaf->id.dir;
      if (dir == kOwnDir || state_.foreign[dir - 1].headers_read) {
        state_.evicting = leaf->id;
        return Victim{state_.PathOf(leaf->id), leaf->bytes, leaf->id,
                      leaf->generation};
      }
      unread = dir;
    }
    // Which of that directory's files are leaves is not known yet.
    ReadForeignHeaders(unread);
  }
}

absl::Status DiskBudget::RemoveVictim(const Victim& victim) {
  const absl::Status status = state_.parts.env->Unlink(victim.path);
  const bool gone = status.ok() || absl::IsNotFound(status);
  {
    MutexLock lock(state_.mutex);
    state_.evicting.reset();
    if (gone && victim.id.has_value()) {
      ForgetVictim(victim);
    } else if (gone || absl::IsFailedPrecondition(status)) {
      if (state_.index.RemoveLoose(victim.path).has_value()) {
        state_.index.Settle(victim.bytes);
        // A directory never goes.
        state_.index.AddFixed(gone ? 0 : victim.bytes);
      }
    }
  }
  state_.WakeUp();
  return gone ? absl::OkStatus() : status;
}

void DiskBudget::ForgetVictim(const Victim& victim) {
  const IndexEntry* const entry = state_.index.Find(*victim.id);
  if (entry == nullptr || entry->generation != victim.generation) {
    // Somebody else has taken it out, and says so.
    return;
  }
  state_.index.Remove(*victim.id);
  state_.index.Settle(victim.bytes);
  if (IsSession(victim.id->key)) {
    return;
  }
  ++state_.counters.evicted;
  if (victim.id->dir == kOwnDir) {
    state_.AddEvents({cache::DroppedEvent{victim.id->key}});
  }
}

void DiskBudget::ReadForeignHeaders(DirIndex dir) {
  state_.foreign[dir - 1].headers_read = true;
  std::vector<IndexEntry> entries;
  {
    MutexLock lock(state_.mutex);
    entries = state_.index.EntriesOf(dir);
  }
  std::vector<std::string> paths;
  paths.reserve(entries.size());
  std::erase_if(
      entries, [](const IndexEntry& entry) { return IsSession(entry.id.key); });
  for (const IndexEntry& entry : entries) {
    paths.push_back(state_.PathOf(entry.id));
  }
  ReadHeaders(*state_.parts.env, paths,
              [&](size_t i, const FileInfo&,
                  const absl::StatusOr<BlockHeader>& header) {
                if (header.ok()) {
                  entries[i].parent = header->identity.parent;
                  entries[i].is_state = header->scheme.geometry.is_state();
                  MutexLock lock(state_.mutex);
                  state_.index.Add(entries[i]);
                }
              });
}

void DiskBudget::RemoveFile(const std::string& path, uint64_t bytes) {
  const absl::Status status = state_.parts.env->Unlink(path);
  const bool gone = status.ok() || absl::IsNotFound(status);
  if (!gone) {
    state_.parts.logger->warn("cannot remove {}: {}; it stays and counts", path,
                              status.ToString());
  }
  MutexLock lock(state_.mutex);
  state_.index.Settle(bytes);
  if (absl::IsFailedPrecondition(status)) {
    // A directory never goes.
    state_.index.AddFixed(bytes);
  } else if (!gone) {
    state_.index.AddLoose({path, bytes, state_.parts.clock->WallNow()});
  }
}

void DiskBudget::Discard(const std::string& path, uint64_t bytes) {
  if (path.empty()) {
    return;
  }
  const absl::Status status = state_.parts.env->Unlink(path);
  if (status.ok() || absl::IsNotFound(status)) {
    return;
  }
  state_.parts.logger->warn("cannot remove {}: {}", path, status.ToString());
  const absl::StatusOr<FileInfo> info = state_.parts.env->Stat(path);
  MutexLock lock(state_.mutex);
  state_.index.AddLoose({path, info.ok() ? info->allocated : bytes,
                         state_.parts.clock->WallNow()});
}

void DiskBudget::EnforceCap() {
  uint64_t over = 0;
  {
    MutexLock lock(state_.mutex);
    const uint64_t used = state_.index.bytes();
    over =
        used > state_.options.max_bytes ? used - state_.options.max_bytes : 0;
    // What cannot be evicted cannot be helped.
    over = std::min(over, state_.index.evictable_bytes());
  }
  if (over == 0) {
    return;
  }
  state_.parts.logger->info("{} is {} over its cap: evicting",
                            state_.options.dir, FormatBytes(over));
  if (const absl::Status status = Evict(over, {}); !status.ok()) {
    state_.parts.logger->warn("{}", status.ToString());
  }
}

void DiskBudget::CountDirectories() {
  uint64_t bytes = 0;
  const auto add = [&](const std::string& dir) {
    if (const auto info = state_.parts.env->Stat(dir); info.ok()) {
      bytes += info->allocated;
    }
  };
  add(state_.options.dir);
  add(state_.own_dir);
  add(state_.damaged_dir);
  for (const ForeignDir& dir : state_.foreign) {
    add(dir.path);
  }
  MutexLock lock(state_.mutex);
  state_.index.set_directory_bytes(bytes);
}

absl::Status DiskBudget::MakeDamagedDir() {
  Env& env = *state_.parts.env;
  EW_RETURN_IF_ERROR(CheckIsDirectory(env, state_.damaged_dir));
  // The cap holds for a directory as well, which may grow by one more name, and
  // no good block goes for it.
  constexpr uint64_t kDirectoryBytes = 4096;
  EW_ASSIGN_OR_RETURN(const uint64_t deficit, Deficit(kDirectoryBytes));
  if (deficit > 0) {
    return absl::ResourceExhaustedError("no room to keep it");
  }
  if (env.Stat(state_.damaged_dir).ok()) {
    return absl::OkStatus();
  }
  const absl::Status made = env.MakeDir(state_.damaged_dir);
  CountDirectories();
  return made;
}

void DiskBudget::SetAside(const std::string& path, uint64_t bytes,
                          const absl::Status& why) {
  Env& env = *state_.parts.env;
  const std::string name = NameOf(path);
  const Clock::Wall now = state_.parts.clock->WallNow();
  const std::string to =
      absl::StrCat(state_.damaged_dir, "/", name, ".",
                   std::chrono::duration_cast<std::chrono::nanoseconds>(
                       now.time_since_epoch())
                       .count(),
                   ".", set_aside_count_++);
  absl::Status moved = MakeDamagedDir();
  if (moved.ok()) {
    moved = env.Rename(path, to);
  }
  state_.parts.logger->warn("{} cannot be used ({}); set aside as {}: {}", path,
                            why.ToString(), to, moved.ToString());
  if (!moved.ok()) {
    RemoveFile(path, bytes);
    return;
  }
  const absl::StatusOr<FileInfo> info = env.Stat(to);
  const uint64_t on_disk = info.ok() ? info->allocated : bytes;
  MutexLock lock(state_.mutex);
  state_.index.Settle(bytes);
  if (info.ok() && info->kind == FileKind::kDirectory) {
    // It never goes.
    state_.index.AddFixed(on_disk);
  } else {
    state_.index.AddLoose({to, on_disk, now});
  }
}

}  // namespace everwarm::store
