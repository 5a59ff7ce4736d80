#include "store/own_directory.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/directory_layout.h"
#include "store/durable_dir.h"
#include "store/session_file.h"

namespace everwarm::store {
namespace {

// Entries whose files went with the directory: whoever counts on them hears of
// it now, and not when they are needed.
void ForgetRemovedFiles(StoreState& state) {
  const absl::StatusOr<std::vector<std::string>> names =
      state.parts.env->List(state.own_dir);
  if (!names.ok() && !absl::IsNotFound(names.status())) {
    // What is missing is found when it is read.
    state.parts.logger->warn("{}", names.status().ToString());
    return;
  }
  absl::flat_hash_set<std::string> there;
  if (names.ok()) {
    there.insert(names->begin(), names->end());
  }
  std::vector<IndexEntry> gone;
  {
    MutexLock lock(state.mutex);
    gone = state.index.EntriesOf(kOwnDir);
  }
  std::erase_if(gone, [&](const IndexEntry& entry) {
    return there.contains(NameOf(state.PathOf(entry.id)));
  });
  size_t blocks = 0;
  {
    MutexLock lock(state.mutex);
    for (const IndexEntry& entry : gone) {
      const IndexEntry* const now = state.index.Find(entry.id);
      if (now == nullptr || now->generation != entry.generation) {
        continue;
      }
      state.index.Remove(entry.id);
      state.index.Settle(entry.bytes);
      if (!IsSession(entry.id.key)) {
        ++blocks;
        state.AddEvents(
            {cache::DroppedEvent{entry.id.key, cache::DropReason::kLost}});
      }
    }
  }
  if (blocks > 0) {
    state.parts.logger->warn(
        "{}: somebody has removed the files of {} stored blocks", state.own_dir,
        blocks);
  }
  state.WakeUp();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> LockCacheDirectory(
    Env& env, const std::string& dir, std::string_view holder) {
  const std::string path = absl::StrCat(dir, "/", kLockName);
  absl::StatusOr<std::unique_ptr<FileLock>> lock = env.Lock(path);
  if (!absl::IsFailedPrecondition(lock.status())) {
    return lock;
  }
  if (const absl::StatusOr<FileInfo> info = env.Stat(path);
      info.ok() && info->kind != FileKind::kRegular) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cache directory ", dir, " cannot be locked (", lock.status().message(),
        "); remove what is there under that name"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cache directory ", dir, " is in use by ",
                   absl::string_view(holder.data(), holder.size())));
}

absl::Status CheckIsDirectory(Env& env, const std::string& path) {
  const absl::StatusOr<FileInfo> info = env.Stat(path);
  if (absl::IsNotFound(info.status())) {
    return absl::OkStatus();
  }
  EW_RETURN_IF_ERROR(info.status());
  if (info->kind != FileKind::kDirectory) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is a link or a file, where a directory has to be: what lies ",
        "behind a link is not counted against the cap. Move it, or let the ",
        "cache directory itself be the link"));
  }
  return absl::OkStatus();
}

absl::Status MakeOwnDir(StoreState& state) {
  EW_RETURN_IF_ERROR(CheckIsDirectory(*state.parts.env, state.own_dir));
  return MakeDurableDir(*state.parts.env, state.own_dir, state.parts.logger);
}

absl::Status HoldDirectory(StoreState& state) {
  const std::string& dir = state.options.dir;
  const absl::Status held = state.directory_lock->Check();
  if (absl::IsFailedPrecondition(held)) {
    // It may hold files that nobody here has counted: a new scan is needed.
    return absl::FailedPreconditionError(absl::StrCat(
        "cache directory ", dir,
        " was taken over: its lock file was removed and made anew by somebody ",
        "else. Nothing is written there before a restart"));
  }
  if (!absl::IsNotFound(held)) {
    return held;
  }
  EW_RETURN_IF_ERROR(MakeDurableDir(*state.parts.env, dir, state.parts.logger));
  EW_ASSIGN_OR_RETURN(state.directory_lock,
                      LockCacheDirectory(*state.parts.env, dir));
  state.parts.logger->warn(
      "the lock file of cache directory {} was removed; it is made anew", dir);
  ForgetRemovedFiles(state);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> CreateOwnFile(StoreState& state,
                                                    const std::string& path) {
  Env& env = *state.parts.env;
  absl::StatusOr<std::unique_ptr<File>> file =
      env.Create(path, {.direct = true});
  if (absl::IsNotFound(file.status())) {
    // Perhaps not this directory alone was removed.
    EW_RETURN_IF_ERROR(HoldDirectory(state));
    EW_RETURN_IF_ERROR(MakeOwnDir(state));
    ForgetRemovedFiles(state);
    file = env.Create(path, {.direct = true});
  }
  return file;
}

}  // namespace everwarm::store
