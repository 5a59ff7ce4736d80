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
#include "store/session_file.h"
#include "store/session_removal.h"

namespace everwarm::store {
namespace {

std::string Join(const std::string& dir, const std::string& name) {
  return absl::StrCat(dir, "/", name);
}

// Names of fingerprints' directories, in order.
absl::StatusOr<std::vector<std::string>> ListModels(Env& env,
                                                    const std::string& dir) {
  EW_ASSIGN_OR_RETURN(std::vector<std::string> names, env.List(dir));
  std::erase_if(names, [&](const std::string& name) {
    const absl::StatusOr<FileInfo> info = env.Stat(Join(dir, name));
    return !DigestFromHex(name).has_value() || !info.ok() ||
           info->kind != FileKind::kDirectory;
  });
  std::sort(names.begin(), names.end());
  return names;
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
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> models,
                      ListModels(env, dir));
  std::vector<std::pair<std::string, Digest>> files;
  for (const std::string& model : models) {
    for (std::vector<std::string> paths :
         {ListBlockPaths(env, Join(dir, model)),
          ListSessionPaths(env, Join(dir, model))}) {
      for (std::string& path : paths) {
        files.emplace_back(std::move(path), *DigestFromHex(model));
      }
    }
  }
  VerifyReport report;
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
  absl::StatusOr<std::unique_ptr<FileLock>> lock = env->Lock(lock_path);
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cache directory ", dir, " is in use by a server; stop it first"));
  }
  EW_RETURN_IF_ERROR(lock.status());
  return DirectoryCleaner(env, std::move(dir), *std::move(lock));
}

std::vector<std::string> DirectoryCleaner::ModelDirs() const {
  std::vector<std::string> dirs;
  for (const std::string& name :
       ListModels(*env_, dir_).value_or(std::vector<std::string>())) {
    dirs.push_back(Join(dir_, name));
  }
  return dirs;
}

std::vector<std::string> DirectoryCleaner::FilesIn(
    const std::string& dir) const {
  return env_->List(dir).value_or(std::vector<std::string>());
}

void DirectoryCleaner::RemoveFile(const std::string& path, Removed& removed) {
  const absl::StatusOr<FileInfo> info = env_->Stat(path);
  if (!info.ok() || info->kind == FileKind::kDirectory) {
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
  for (const std::string& name : FilesIn(dir)) {
    RemoveFile(Join(dir, name), removed);
  }
  removed.failure.Update(env_->SyncDir(dir));
}

Removed DirectoryCleaner::RemoveLeftovers() {
  Removed removed;
  std::vector<std::string> dirs = ModelDirs();
  dirs.push_back(dir_);
  for (const std::string& dir : dirs) {
    for (const std::string& name : FilesIn(dir)) {
      if (IsTempName(name)) {
        RemoveFile(Join(dir, name), removed);
      }
    }
    removed.failure.Update(env_->SyncDir(dir));
  }
  if (const std::string damaged = Join(dir_, kDamagedDirName);
      env_->Stat(damaged).ok()) {
    RemoveFilesIn(damaged, removed);
  }
  return removed;
}

Removed DirectoryCleaner::RemoveOtherModels(
    const std::vector<Fingerprint>& keep) {
  Removed removed;
  for (const std::string& dir : ModelDirs()) {
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
  for (const std::string& dir : ModelDirs()) {
    const std::vector<std::string> paths = ListBlockPaths(*env_, dir);
    LastUses uses;
    ReadHeaders(*env_, paths,
                [&](size_t i, const FileInfo& info,
                    const absl::StatusOr<BlockHeader>& header) {
                  uses.Add(paths[i], info, header);
                });
    for (const std::string& path : uses.UnusedSince(limit)) {
      RemoveFile(path, removed);
    }
    for (const std::string& path : ListSessionPaths(*env_, dir)) {
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
  for (const std::string& dir : ModelDirs()) {
    const SessionFiles files = FilesOfSession(*env_, dir, session);
    known = known || !files.records.empty();
    // In this order, also after a loss of power: blocks without their record
    // would be nobody's.
    for (const std::vector<std::string>* paths :
         {&files.blocks, &files.records}) {
      for (const std::string& path : *paths) {
        RemoveFile(path, removed);
      }
      removed.failure.Update(env_->SyncDir(dir));
      if (removed.failed > 0) {
        break;
      }
    }
  }
  if (!known) {
    return absl::NotFoundError(
        absl::StrCat("no session of that name is in ", dir_));
  }
  return removed;
}

Removed DirectoryCleaner::RemoveAll() {
  Removed removed = RemoveLeftovers();
  for (const std::string& dir : ModelDirs()) {
    RemoveFilesIn(dir, removed);
  }
  RemoveFile(Join(dir_, kWeightsMemoName), removed);
  removed.failure.Update(env_->SyncDir(dir_));
  return removed;
}

absl::StatusOr<Fingerprint> FindFingerprint(Env& env, const std::string& dir,
                                            const std::string& digits) {
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> models,
                      ListModels(env, dir));
  std::vector<std::string> found;
  for (const std::string& model : models) {
    if (absl::StartsWith(model, digits)) {
      found.push_back(model);
    }
  }
  if (found.size() != 1 || digits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", digits, "' names ", found.size(), " models of ", dir,
                     "; there are: ", absl::StrJoin(models, ", ")));
  }
  return Fingerprint{*DigestFromHex(found[0])};
}

}  // namespace everwarm::store
