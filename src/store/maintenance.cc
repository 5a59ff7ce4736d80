#include "store/maintenance.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "store/block_file.h"
#include "store/directory_layout.h"
#include "store/header_reader.h"
#include "store/inspect.h"
#include "store/own_directory.h"
#include "store/session_file.h"
#include "store/session_removal.h"

namespace everwarm::store {
namespace {

std::string Join(const std::string& dir, const std::string& name) {
  return absl::StrCat(dir, "/", name);
}

// What is not looked into: a link may lead anywhere, out of the cache too.
absl::Status NoDirectory(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a directory, and is left alone"));
}

struct Models {
  // Names of fingerprints' directories, in order.
  std::vector<std::string> names;
  // The same that may hold blocks and cannot be looked into, and why.
  std::vector<std::pair<std::string, absl::Status>> refused;
};

absl::StatusOr<Models> ListModels(Env& env, const std::string& dir) {
  EW_ASSIGN_OR_RETURN(std::vector<std::string> names, env.List(dir));
  std::sort(names.begin(), names.end());
  Models models;
  for (std::string& name : names) {
    if (!DigestFromHex(name).has_value()) {
      continue;
    }
    const std::string path = Join(dir, name);
    const absl::StatusOr<FileInfo> info = env.Stat(path);
    if (info.ok() && info->kind == FileKind::kDirectory) {
      models.names.push_back(std::move(name));
    } else if (info.ok() && info->kind == FileKind::kOther) {
      models.refused.emplace_back(path, NoDirectory(path));
    } else if (!info.ok() && !absl::IsNotFound(info.status())) {
      models.refused.emplace_back(path, info.status());
    }
  }
  return models;
}

bool IsSessionPath(const std::string& path) {
  return ParseSessionFileName(NameOf(path)).has_value();
}

absl::Status VerifyOne(Env& env, const std::string& path,
                       const Digest& fingerprint) {
  Fingerprint found;
  if (IsSessionPath(path)) {
    EW_ASSIGN_OR_RETURN(const SessionFile file, ReadSessionFile(env, path));
    found = file.fingerprint;
  } else {
    EW_ASSIGN_OR_RETURN(const BlockHeader header, VerifyBlockFile(env, path));
    found = header.fingerprint;
  }
  if (found.digest != fingerprint) {
    return absl::DataLossError(
        absl::StrCat("belongs to another model: ", found.hex()));
  }
  return absl::OkStatus();
}

// Of a header: it was read, whatever was in it; else nothing is known of the
// file, not even its time.
bool Looked(const absl::Status& status) {
  return status.ok() || absl::IsDataLoss(status) ||
         absl::IsUnimplemented(status);
}
// Of one that was not: neither gone meanwhile, nor a link or the like.
bool MayBeABlock(const absl::Status& status) {
  return !absl::IsNotFound(status) && !absl::IsFailedPrecondition(status);
}

// When each node, or what continues it, was used last.
class LastUses {
 public:
  void Add(const std::string& path, const FileInfo& info,
           const absl::StatusOr<BlockHeader>& header) {
    File file{path, info.modified, std::nullopt};
    if (header.ok()) {
      const cache::BlockIdentity& identity = header->identity;
      file.node = identity.key.node;
      Node& node = nodes_[identity.key.node];
      node.parent = identity.parent;
      node.start = identity.start;
      node.used = std::max(node.used, info.modified);
    }
    files_.push_back(std::move(file));
  }

  std::vector<std::string> UnusedSince(Clock::Wall limit) {
    // Children hand their time up, the farthest from the root first.
    std::vector<Node*> order;
    for (auto& [id, node] : nodes_) {
      order.push_back(&node);
    }
    std::sort(order.begin(), order.end(),
              [](const Node* a, const Node* b) { return a->start > b->start; });
    for (const Node* node : order) {
      if (const auto parent = nodes_.find(node->parent);
          parent != nodes_.end()) {
        parent->second.used = std::max(parent->second.used, node->used);
      }
    }
    std::vector<std::string> paths;
    for (const File& file : files_) {
      const Clock::Wall used =
          file.node.has_value() ? nodes_.at(*file.node).used : file.used;
      if (used < limit) {
        paths.push_back(file.path);
      }
    }
    return paths;
  }

 private:
  struct File {
    std::string path;
    Clock::Wall used;
    // Nothing where the header cannot be read.
    std::optional<NodeId> node;
  };
  struct Node {
    NodeId parent;
    TokenPos start = 0;
    Clock::Wall used;
  };
  std::vector<File> files_;
  absl::flat_hash_map<NodeId, Node> nodes_;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyDirectory(
    Env& env, const std::string& dir,
    absl::FunctionRef<void(const std::string&, const absl::Status&)> damage,
    absl::FunctionRef<void(uint64_t, uint64_t)> progress) {
  EW_ASSIGN_OR_RETURN(const Models models, ListModels(env, dir));
  VerifyReport report;
  const auto unread = [&](const std::string& path, const absl::Status& why) {
    ++report.damaged;
    damage(path, why);
  };
  for (const auto& [path, why] : models.refused) {
    unread(path, why);
  }
  std::vector<std::pair<std::string, Digest>> files;
  for (const std::string& model : models.names) {
    const std::string path = Join(dir, model);
    for (const auto& list : {ListBlockPaths, ListSessionPaths}) {
      absl::StatusOr<std::vector<std::string>> paths = list(env, path);
      if (absl::IsNotFound(paths.status())) {
        continue;
      }
      if (!paths.ok()) {
        unread(path, paths.status());
        break;
      }
      for (std::string& file : *paths) {
        files.emplace_back(std::move(file), *DigestFromHex(model));
      }
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& [path, fingerprint] = files[i];
    const absl::StatusOr<FileInfo> info = env.Stat(path);
    const absl::Status status = VerifyOne(env, path, fingerprint);
    progress(i + 1, files.size());
    if (absl::IsNotFound(status)) {
      continue;
    }
    ++(IsSessionPath(path) ? report.sessions : report.files);
    report.bytes += info.ok() ? info->size : 0;
    if (absl::IsUnimplemented(status)) {
      ++report.other_version;
    } else if (!status.ok()) {
      ++report.damaged;
      damage(path, status);
    }
  }
  return report;
}

absl::StatusOr<DirectoryCleaner> DirectoryCleaner::Open(Env* env,
                                                        std::string dir) {
  const std::string lock_path = Join(dir, kLockName);
  if (!env->Stat(lock_path).ok()) {
    EW_RETURN_IF_ERROR(env->Stat(dir).status());
    return absl::NotFoundError(absl::StrCat(
        dir, " is not a cache directory: there is no ", lock_path));
  }
  EW_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock,
                      LockCacheDirectory(*env, dir, "a server; stop it first"));
  return DirectoryCleaner(env, std::move(dir), std::move(lock));
}

std::vector<std::string> DirectoryCleaner::ModelDirs(Removed& removed) const {
  std::vector<std::string> dirs;
  const absl::StatusOr<Models> models = ListModels(*env_, dir_);
  removed.failure.Update(models.status());
  if (models.ok()) {
    for (const auto& [path, why] : models->refused) {
      removed.failure.Update(why);
    }
    for (const std::string& name : models->names) {
      dirs.push_back(Join(dir_, name));
    }
  }
  return dirs;
}

std::vector<std::string> DirectoryCleaner::FilesIn(const std::string& dir,
                                                   Removed& removed) const {
  absl::StatusOr<std::vector<std::string>> names = env_->List(dir);
  if (!names.ok()) {
    removed.failure.Update(names.status());
    return {};
  }
  return *std::move(names);
}

void DirectoryCleaner::RemoveFile(const std::string& path, Removed& removed) {
  const absl::StatusOr<FileInfo> info = env_->Stat(path);
  if (absl::IsNotFound(info.status()) ||
      (info.ok() && info->kind == FileKind::kDirectory)) {
    return;
  }
  if (!info.ok()) {
    ++removed.failed;
    removed.failure = info.status();
    return;
  }
  const absl::Status status = env_->Unlink(path);
  if (status.ok()) {
    ++removed.files;
    removed.bytes += info->allocated;
  } else if (!absl::IsNotFound(status)) {
    ++removed.failed;
    removed.failure = status;
  }
}

void DirectoryCleaner::RemoveFilesIn(const std::string& dir, Removed& removed) {
  for (const std::string& name : FilesIn(dir, removed)) {
    RemoveFile(Join(dir, name), removed);
  }
  removed.failure.Update(env_->SyncDir(dir));
}

void DirectoryCleaner::RemoveSetAside(Removed& removed) {
  const std::string damaged = Join(dir_, kDamagedDirName);
  const absl::StatusOr<FileInfo> info = env_->Stat(damaged);
  if (absl::IsNotFound(info.status())) {
    return;
  }
  if (info.ok() && info->kind == FileKind::kDirectory) {
    RemoveFilesIn(damaged, removed);
    return;
  }
  removed.failure.Update(info.ok() ? NoDirectory(damaged) : info.status());
}

Removed DirectoryCleaner::RemoveLeftovers() {
  Removed removed;
  std::vector<std::string> dirs = ModelDirs(removed);
  dirs.push_back(dir_);
  for (const std::string& dir : dirs) {
    for (const std::string& name : FilesIn(dir, removed)) {
      if (IsTempName(name)) {
        RemoveFile(Join(dir, name), removed);
      }
    }
    removed.failure.Update(env_->SyncDir(dir));
  }
  RemoveSetAside(removed);
  return removed;
}

Removed DirectoryCleaner::RemoveOtherModels(
    const std::vector<Fingerprint>& keep) {
  Removed removed;
  for (const std::string& dir : ModelDirs(removed)) {
    const bool kept = std::any_of(
        keep.begin(), keep.end(), [&](const Fingerprint& fingerprint) {
          return absl::EndsWith(dir, fingerprint.hex());
        });
    if (!kept) {
      RemoveFilesIn(dir, removed);
    }
  }
  return removed;
}

Removed DirectoryCleaner::RemoveUnusedSince(Clock::Wall limit) {
  Removed removed;
  for (const std::string& dir : ModelDirs(removed)) {
    const absl::StatusOr<std::vector<std::string>> paths =
        ListBlockPaths(*env_, dir);
    const absl::StatusOr<std::vector<std::string>> sessions =
        ListSessionPaths(*env_, dir);
    if (!paths.ok() || !sessions.ok()) {
      removed.failure.Update(paths.status());
      removed.failure.Update(sessions.status());
      continue;
    }
    LastUses uses;
    ReadHeaders(*env_, *paths,
                [&](size_t i, const FileInfo& info,
                    const absl::StatusOr<BlockHeader>& header) {
                  if (Looked(header.status())) {
                    uses.Add((*paths)[i], info, header);
                  } else if (MayBeABlock(header.status())) {
                    removed.failure.Update(header.status());
                  }
                });
    for (const std::string& path : uses.UnusedSince(limit)) {
      RemoveFile(path, removed);
    }
    for (const std::string& path : *sessions) {
      if (const auto info = env_->Stat(path);
          info.ok() && info->modified < limit) {
        RemoveFile(path, removed);
      }
    }
    removed.failure.Update(env_->SyncDir(dir));
  }
  return removed;
}

absl::StatusOr<Removed> DirectoryCleaner::RemoveSession(
    const cache::SessionId& session) {
  Removed removed = RemoveLeftovers();
  bool known = false;
  for (const std::string& dir : ModelDirs(removed)) {
    const absl::StatusOr<SessionFiles> files =
        FilesOfSession(*env_, dir, session);
    if (!files.ok()) {
      removed.failure.Update(files.status());
      continue;
    }
    known = known || !files->records.empty();
    RemoveSessionFiles(dir, *files, removed);
  }
  // What could not be looked into may have known it.
  if (!known && removed.failure.ok()) {
    return absl::NotFoundError(
        absl::StrCat("no session of that name is in ", dir_));
  }
  return removed;
}

void DirectoryCleaner::RemoveSessionFiles(const std::string& dir,
                                          const SessionFiles& files,
                                          Removed& removed) {
  for (const auto& [path, why] : files.unread) {
    removed.failure.Update(absl::UnavailableError(
        absl::StrCat(path,
                     " cannot be read and may be the session's, of which "
                     "nothing was removed; try again, or remove this file: ",
                     why.message())));
  }
  if (!files.unread.empty()) {
    return;
  }
  // In this order, also after a loss of power: what is left when one of them
  // ends early is told by what comes after it, and blocks without their record
  // would be nobody's.
  for (const std::vector<std::string>* paths :
       {&files.beside_paths, &files.on_paths, &files.records}) {
    for (const std::string& path : *paths) {
      RemoveFile(path, removed);
    }
    removed.failure.Update(env_->SyncDir(dir));
    if (removed.failed > 0) {
      break;
    }
  }
}

Removed DirectoryCleaner::RemoveAll() {
  Removed removed = RemoveLeftovers();
  for (const std::string& dir : ModelDirs(removed)) {
    RemoveFilesIn(dir, removed);
  }
  RemoveFile(Join(dir_, kWeightsMemoName), removed);
  removed.failure.Update(env_->SyncDir(dir_));
  return removed;
}

absl::StatusOr<Fingerprint> FindFingerprint(Env& env, const std::string& dir,
                                            const std::string& digits) {
  EW_ASSIGN_OR_RETURN(const Models models, ListModels(env, dir));
  std::vector<std::string> found;
  for (const std::string& model : models.names) {
    if (absl::StartsWith(model, digits)) {
      found.push_back(model);
    }
  }
  if (found.size() != 1 || digits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", digits, "' names ", found.size(), " models of ", dir,
                     "; there are: ", absl::StrJoin(models.names, ", ")));
  }
  return Fingerprint{*DigestFromHex(found[0])};
}

}  // namespace everwarm::store
