#include "store/session_removal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/block_file.h"
#include "store/directory_layout.h"
#include "store/header_reader.h"
#include "store/session_file.h"

namespace everwarm::store {
namespace {

template <typename Parse>
absl::StatusOr<std::vector<std::string>> ListPaths(Env& env,
                                                   const std::string& dir,
                                                   Parse parse) {
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(dir));
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (parse(name).has_value()) {
      paths.push_back(absl::StrCat(dir, "/", name));
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

using NodeSet = absl::flat_hash_set<NodeId>;

// The blocks of a directory as a tree.
class Blocks {
 public:
  Blocks(Env& env, const std::vector<std::string>& paths) {
    ReadHeaders(
        env, paths,
        [&](size_t i, const FileInfo&, absl::StatusOr<BlockHeader> header) {
          if (!header.ok()) {
            unread_.push_back({paths[i],
                               ParseBlockFileName(NameOf(paths[i]))->node,
                               header.status()});
          } else {
            Node& node = nodes_[header->identity.key.node];
            node.parent = header->identity.parent;
            node.tokens = std::move(header->identity.tokens);
            node.has_block =
                node.has_block || !header->scheme.geometry.is_state();
            node.paths.push_back(paths[i]);
          }
        });
  }

  // Tails that a node of the set goes on from, and states inside of its span,
  // are taken into it.
  void AddBeginnings(NodeSet& set) const {
    absl::flat_hash_map<NodeId, std::vector<const Node*>> by_parent;
    for (const NodeId& id : set) {
      if (const auto found = nodes_.find(id); found != nodes_.end()) {
        by_parent[found->second.parent].push_back(&found->second);
      }
    }
    for (const auto& [id, node] : nodes_) {
      const auto siblings = by_parent.find(node.parent);
      if (siblings != by_parent.end() &&
          std::any_of(siblings->second.begin(), siblings->second.end(),
                      [&node = node](const Node* longer) {
                        return BeginsWith(longer->tokens, node.tokens);
                      })) {
        set.insert(id);
      }
    }
  }

  // Where a node of the path cannot be read, nobody can tell what is a
  // beginning of it: all that is in its place is taken.
  void AddBesideUnread(const cache::SessionRecord& record, NodeSet& set) const {
    NodeSet parents;
    for (size_t i = 0; i < record.path.size(); ++i) {
      if (nodes_.find(record.path[i]) == nodes_.end() &&
          std::any_of(unread_.begin(), unread_.end(), [&](const Unread& file) {
            return file.node == record.path[i];
          })) {
        parents.insert(i == 0 ? record.root : record.path[i - 1]);
      }
    }
    for (const auto& [id, node] : nodes_) {
      if (parents.contains(node.parent)) {
        set.insert(id);
      }
    }
  }

  // States behind a node of the set that are in no block's span: a model
  // without blocks has only these.
  void AddUnclaimedStates(NodeSet& set, const NodeSet& of_others) const {
    absl::flat_hash_map<NodeId, std::vector<const Node*>> spans;
    for (const auto& [id, node] : nodes_) {
      if (node.has_block) {
        spans[node.parent].push_back(&node);
      }
    }
    std::vector<NodeId> unclaimed;
    for (const auto& [id, node] : nodes_) {
      if (node.has_block || !set.contains(node.parent) ||
          of_others.contains(node.parent)) {
        continue;
      }
      const std::vector<const Node*>& siblings = spans[node.parent];
      if (std::none_of(siblings.begin(), siblings.end(),
                       [&node = node](const Node* span) {
                         return BeginsWith(span->tokens, node.tokens);
                       })) {
        unclaimed.push_back(id);
      }
    }
    set.insert(unclaimed.begin(), unclaimed.end());
  }

  // Nodes that something outside the set builds on.
  NodeSet NeededBeside(const NodeSet& set) const {
    NodeSet needed;
    for (const auto& [id, node] : nodes_) {
      if (set.contains(id)) {
        continue;
      }
      // Until where another one has been.
      for (auto up = nodes_.find(node.parent);
           up != nodes_.end() && needed.insert(up->first).second;) {
        up = nodes_.find(up->second.parent);
      }
    }
    return needed;
  }

  // Files of the set's nodes, also those that could not be read.
  std::vector<std::string> PathsOf(const NodeSet& set) const {
    std::vector<std::string> paths;
    for (const NodeId& id : set) {
      if (const auto found = nodes_.find(id); found != nodes_.end()) {
        paths.insert(paths.end(), found->second.paths.begin(),
                     found->second.paths.end());
      }
    }
    for (const Unread& file : unread_) {
      if (set.contains(file.node) && !absl::IsNotFound(file.why)) {
        paths.push_back(file.path);
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  // What could not be read and is of no node that is known.
  struct Unread {
    std::string path;
    NodeId node;
    absl::Status why;
  };
  std::vector<Unread> UnreadBeside(const NodeSet& known) const {
    std::vector<Unread> beside;
    std::copy_if(
        unread_.begin(), unread_.end(), std::back_inserter(beside),
        [&](const Unread& file) { return !known.contains(file.node); });
    return beside;
  }

 private:
  struct Node {
    NodeId parent;
    std::vector<TokenId> tokens;
    std::vector<std::string> paths;
    // Else only states.
    bool has_block = false;
  };
  static bool BeginsWith(const std::vector<TokenId>& tokens,
                         const std::vector<TokenId>& beginning) {
    return tokens.size() >= beginning.size() &&
           std::equal(beginning.begin(), beginning.end(), tokens.begin());
  }

  absl::flat_hash_map<NodeId, Node> nodes_;
  std::vector<Unread> unread_;
};

// Of files that nothing but their header tells whose they are.
void SortOut(const std::vector<Blocks::Unread>& unread, SessionFiles& files) {
  for (const Blocks::Unread& file : unread) {
    if (absl::IsDataLoss(file.why)) {
      files.beside_paths.push_back(file.path);
    } else if (!absl::IsNotFound(file.why) &&
               !absl::IsFailedPrecondition(file.why)) {
      // Neither gone meanwhile, nor a link or the like under a block's name.
      files.unread.emplace_back(file.path, file.why);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListBlockPaths(
    Env& env, const std::string& dir) {
  return ListPaths(env, dir, ParseBlockFileName);
}

absl::StatusOr<std::vector<std::string>> ListSessionPaths(
    Env& env, const std::string& dir) {
  return ListPaths(env, dir, ParseSessionFileName);
}

absl::StatusOr<SessionFiles> FilesOfSession(Env& env, const std::string& dir,
                                            const cache::SessionId& session) {
  SessionFiles files;
  std::vector<cache::SessionRecord> own_records;
  NodeSet own;
  NodeSet of_others;
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> records,
                      ListSessionPaths(env, dir));
  for (const std::string& path : records) {
    const absl::StatusOr<SessionFile> file = ReadSessionFile(env, path);
    if (!file.ok()) {
      // A damaged one holds no text, and names nothing any more.
      if (!absl::IsNotFound(file.status()) &&
          !absl::IsDataLoss(file.status()) &&
          !absl::IsFailedPrecondition(file.status())) {
        files.unread.emplace_back(path, file.status());
      }
      continue;
    }
    const cache::SessionRecord& record = file->record;
    const bool is_own = record.session == session;
    (is_own ? own : of_others).insert(record.path.begin(), record.path.end());
    if (is_own) {
      files.records.push_back(path);
      own_records.push_back(record);
    }
  }
  if (files.records.empty()) {
    return files;
  }
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                      ListBlockPaths(env, dir));
  const Blocks blocks(env, paths);
  NodeSet on_paths = own;
  NodeSet known = own;
  known.insert(of_others.begin(), of_others.end());
  SortOut(blocks.UnreadBeside(known), files);
  blocks.AddBeginnings(own);
  for (const cache::SessionRecord& record : own_records) {
    blocks.AddBesideUnread(record, own);
  }
  blocks.AddBeginnings(of_others);
  blocks.AddUnclaimedStates(own, of_others);
  absl::erase_if(own, [&](const NodeId& id) { return of_others.contains(id); });
  const NodeSet needed = blocks.NeededBeside(own);
  absl::erase_if(own, [&](const NodeId& id) { return needed.contains(id); });
  NodeSet beside;
  for (const NodeId& id : own) {
    if (!on_paths.contains(id)) {
      beside.insert(id);
    }
  }
  absl::erase_if(on_paths, [&](const NodeId& id) { return !own.contains(id); });
  for (std::string& path : blocks.PathsOf(beside)) {
    files.beside_paths.push_back(std::move(path));
  }
  files.on_paths = blocks.PathsOf(on_paths);
  return files;
}

}  // namespace everwarm::store
