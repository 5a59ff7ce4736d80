#include "store/inspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/aligned_buffer.h"
#include "store/directory_layout.h"
#include "store/header_reader.h"
#include "store/session_file.h"

namespace everwarm::store {
namespace {

// A node of one fingerprint's tree, over all groups.
struct Node {
  NodeId parent;
  NodeId root;
  TokenPos start = 0;
  std::vector<TokenId> tokens;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  Clock::Wall last_used;
  bool leaf = true;
};
// A state's file: behind the first tokens of some child of its parent.
struct State {
  std::vector<TokenId> tokens;
  uint64_t bytes = 0;
};
struct Tree {
  absl::flat_hash_map<NodeId, Node> nodes;
  // By the parent's id.
  absl::flat_hash_map<NodeId, std::vector<State>> states;
};

void AddToTree(Tree& tree, const BlockHeader& header, const FileInfo& info) {
  const cache::BlockIdentity& identity = header.identity;
  if (header.scheme.geometry.is_state()) {
    tree.states[identity.parent].push_back({identity.tokens, info.allocated});
    return;
  }
  Node& node = tree.nodes[identity.key.node];
  node.parent = identity.parent;
  node.root = identity.root;
  node.start = identity.start;
  node.tokens = identity.tokens;
  ++node.blocks;
  node.bytes += info.allocated;
  node.last_used = std::max(node.last_used, info.modified);
}

// Counts the states on the way through the node; `last` becomes the greatest
// position with one of each recurrent group.
void FollowStates(const Tree& tree, const Node& node, size_t groups,
                  StoredConversation& result, TokenPos& last) {
  const auto found = tree.states.find(node.parent);
  if (found == tree.states.end()) {
    return;
  }
  std::map<TokenPos, size_t> at;
  for (const State& state : found->second) {
    if (state.tokens.size() <= node.tokens.size() &&
        std::equal(state.tokens.begin(), state.tokens.end(),
                   node.tokens.begin())) {
      ++result.states;
      result.bytes += state.bytes;
      const TokenPos position =
          node.start + static_cast<TokenPos>(state.tokens.size());
      if (++at[position] == groups) {
        last = std::max(last, position);
      }
    }
  }
}

StoredConversation FollowUp(const Tree& tree, const NodeId& leaf,
                            size_t recurrent_groups) {
  const Node& end = tree.nodes.at(leaf);
  StoredConversation result;
  result.root = end.root;
  result.leaf = leaf;
  result.tokens = end.start + static_cast<TokenPos>(end.tokens.size());
  result.last_used = end.last_used;
  TokenPos last_state = 0;
  bool gap = false;
  NodeId id = leaf;
  for (;;) {
    const auto found = tree.nodes.find(id);
    if (found == tree.nodes.end()) {
      // Nothing behind it can be reached from the start.
      gap = true;
      break;
    }
    const Node& node = found->second;
    result.blocks += node.blocks;
    result.bytes += node.bytes;
    FollowStates(tree, node, recurrent_groups, result, last_state);
    if (node.start == 0) {
      break;
    }
    id = node.parent;
  }
  if (!gap) {
    result.reachable_tokens = recurrent_groups > 0 ? last_state : result.tokens;
  }
  return result;
}

void AddConversations(Tree& tree, StoredFingerprint& report) {
  std::vector<NodeId> parents;
  for (const auto& [id, node] : tree.nodes) {
    parents.push_back(node.parent);
  }
  for (const NodeId& parent : parents) {
    if (const auto found = tree.nodes.find(parent); found != tree.nodes.end()) {
      found->second.leaf = false;
    }
  }
  const auto recurrent_groups = static_cast<size_t>(std::count_if(
      report.groups.begin(), report.groups.end(), [](const StoredGroup& group) {
        return group.scheme.geometry.is_state();
      }));
  for (const auto& [id, node] : tree.nodes) {
    if (node.leaf) {
      report.conversations.push_back(FollowUp(tree, id, recurrent_groups));
    }
  }
  std::sort(report.conversations.begin(), report.conversations.end(),
            [](const StoredConversation& a, const StoredConversation& b) {
              return a.last_used != b.last_used ? a.last_used > b.last_used
                                                : a.leaf < b.leaf;
            });
}

// The end of the last node of the path that is there.
TokenPos StoredTokens(const Tree& tree, const std::vector<NodeId>& path) {
  for (auto id = path.rbegin(); id != path.rend(); ++id) {
    if (const auto found = tree.nodes.find(*id); found != tree.nodes.end()) {
      return found->second.start +
             static_cast<TokenPos>(found->second.tokens.size());
    }
  }
  return 0;
}

void AddSessions(Env& env, const std::vector<std::string>& paths,
                 const Tree& tree, StoredFingerprint& report) {
  absl::flat_hash_map<cache::SessionId, StoredSession> sessions;
  for (const std::string& path : paths) {
    const absl::StatusOr<FileInfo> info = env.Stat(path);
    const absl::StatusOr<SessionFile> file = ReadSessionFile(env, path);
    if (!info.ok() || absl::IsNotFound(file.status())) {
      continue;
    }
    if (!file.ok() || file->fingerprint != report.fingerprint) {
      ++report.damaged;
      continue;
    }
    StoredSession& session = sessions[file->record.session];
    session.id = file->record.session;
    ++session.conversations;
    session.tokens =
        std::max(session.tokens, StoredTokens(tree, file->record.path));
    session.last_used = std::max(session.last_used, info->modified);
    session.closed = session.closed && file->record.closed;
  }
  for (auto& [id, session] : sessions) {
    report.sessions.push_back(std::move(session));
  }
  std::sort(report.sessions.begin(), report.sessions.end(),
            [](const StoredSession& a, const StoredSession& b) {
              return a.last_used != b.last_used ? a.last_used > b.last_used
                                                : a.id.digest < b.id.digest;
            });
}

void AddEntry(StoredFingerprint& report, Tree& tree, const BlockHeader& header,
              const FileInfo& info) {
  ++report.entries;
  report.bytes += info.allocated;
  const GroupIndex group = header.identity.key.group;
  if (report.groups.size() <= group) {
    report.groups.resize(size_t{group} + 1);
  }
  StoredGroup& stored = report.groups[group];
  const TokenPos start = header.identity.start;
  if (stored.first_codec.empty() || start >= stored.furthest) {
    stored.scheme = header.scheme;
    stored.furthest = start;
  }
  if (stored.first_codec.empty() || start < stored.nearest) {
    stored.first_codec = header.scheme.codec;
    stored.nearest = start;
  }
  if (header.scheme.geometry.is_state()) {
    ++report.states;
    report.state_bytes += info.allocated;
  }
  report.oldest_use =
      std::min(report.oldest_use.value_or(info.modified), info.modified);
  report.newest_use =
      std::max(report.newest_use.value_or(info.modified), info.modified);
  AddToTree(tree, header, info);
}

void AddFingerprint(Env& env, const std::string& dir, const Digest& digest,
                    const std::vector<std::string>& names,
                    DirectoryReport& report) {
  StoredFingerprint found;
  found.fingerprint.digest = digest;
  std::vector<std::string> paths;
  std::vector<std::string> session_paths;
  for (const std::string& name : names) {
    if (ParseBlockFileName(name).has_value()) {
      paths.push_back(absl::StrCat(dir, "/", name));
    } else if (ParseSessionFileName(name).has_value()) {
      session_paths.push_back(absl::StrCat(dir, "/", name));
    }
  }
  Tree tree;
  ReadHeaders(env, paths,
              [&](size_t, const FileInfo& info,
                  const absl::StatusOr<BlockHeader>& header) {
                if (header.ok() && header->fingerprint.digest == digest) {
                  AddEntry(found, tree, *header, info);
                } else if (!absl::IsNotFound(header.status())) {
                  ++found.damaged;
                }
              });
  for (const auto& [id, node] : tree.nodes) {
    found.tokens += node.tokens.size();
  }
  AddConversations(tree, found);
  AddSessions(env, session_paths, tree, found);
  report.fingerprints.push_back(std::move(found));
}

}  // namespace

absl::StatusOr<DirectoryReport> InspectDirectory(Env& env,
                                                 const std::string& dir) {
  DirectoryReport report;
  EW_ASSIGN_OR_RETURN(std::vector<std::string> names, env.List(dir));
  std::sort(names.begin(), names.end());
  const auto count = [&](const std::string& path) -> FileInfo {
    const absl::StatusOr<FileInfo> info = env.Stat(path);
    if (!info.ok()) {
      return {};
    }
    report.total_bytes += info->allocated;
    return *info;
  };
  count(dir);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(dir, "/", name);
    const FileInfo info = count(path);
    const std::optional<Digest> digest = DigestFromHex(name);
    if (digest.has_value() && info.inode != 0 &&
        info.kind == FileKind::kOther) {
      report.refused.push_back(absl::FailedPreconditionError(
          absl::StrCat(path, " is not a directory, and is not looked into")));
    }
    if (info.kind != FileKind::kDirectory ||
        !(digest.has_value() || name == kDamagedDirName)) {
      continue;
    }
    const absl::StatusOr<std::vector<std::string>> inside = env.List(path);
    if (!inside.ok()) {
      if (!absl::IsNotFound(inside.status())) {
        report.refused.push_back(inside.status());
      }
      continue;
    }
    for (const std::string& file : *inside) {
      const FileInfo file_info = count(absl::StrCat(path, "/", file));
      if (!digest.has_value()) {
        ++report.set_aside_files;
        report.set_aside_bytes += file_info.allocated;
      } else if (IsTempName(file)) {
        ++report.temp_files;
        report.temp_bytes += file_info.allocated;
      }
    }
    if (digest.has_value()) {
      AddFingerprint(env, path, *digest, *inside, report);
    }
  }
  return report;
}

absl::StatusOr<BlockHeader> VerifyBlockFile(Env& env, const std::string& path) {
  absl::StatusOr<BlockHeader> header = absl::InternalError("no header");
  ReadHeaders(env, {path},
              [&](size_t, const FileInfo&, absl::StatusOr<BlockHeader> found) {
                header = std::move(found);
              });
  EW_RETURN_IF_ERROR(header.status());
  EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file,
                      env.OpenForRead(path, {.direct = true}));
  const AlignedBuffer payload(header->padded_payload_bytes());
  const std::array<MutableBytes, 1> part = {
      payload.first(header->padded_payload_bytes())};
  EW_ASSIGN_OR_RETURN(const size_t bytes, file->ReadAt(kHeaderBytes, part));
  if (bytes < header->payload_bytes()) {
    return absl::DataLossError(absl::StrCat("payload ends after ", bytes));
  }
  if (ChecksumPayload(part[0].first(header->payload_bytes())) !=
      header->checksum) {
    return absl::DataLossError("wrong checksum of the payload");
  }
  return header;
}

}  // namespace everwarm::store
