#include "store/session_removal.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "store/block_file.h"
#include "store/header_reader.h"
#include "store/session_file.h"

namespace everwarm::store {
namespace {

template <typename Parse>
std::vector<std::string> ListPaths(Env& env, const std::string& dir,
                                   Parse parse) {
  std::vector<std::string> paths;
  for (const std::string& name :
       env.List(dir).value_or(std::vector<std::string>())) {
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
  Blocks(Env& env, const std::string& dir) {
    const std::vector<std::string> paths = ListBlockPaths(env, dir);
    ReadHeaders(
        env, paths,
        [&](size_t i, const FileInfo&, absl::StatusOr<BlockHeader> header) {
          if (header.ok()) {
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

  std::vector<std::string> PathsOf(const NodeSet& set) const {
    std::vector<std::string> paths;
    for (const NodeId& id : set) {
      if (const auto found = nodes_.find(id); found != nodes_.end()) {
        paths.insert(paths.end(), found->second.paths.begin(),
                     found->second.paths.end());
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
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
};

}  // namespace

std::vector<std::string> ListBlockPaths(Env& env, const std::string& dir) {
  return ListPaths(env, dir, ParseBlockFileName);
}

std::vector<std::string> ListSessionPaths(Env& env, const std::string& dir) {
  return ListPaths(env, dir, ParseSessionFileName);
}

SessionFiles FilesOfSession(Env& env, const std::string& dir,
                            const cache::SessionId& session) {
  SessionFiles files;
  NodeSet own;
  NodeSet of_others;
  for (const std::string& path : ListSessionPaths(env, dir)) {
    const absl::StatusOr<SessionFile> file = ReadSessionFile(env, path);
    if (!file.ok()) {
      continue;
    }
    const cache::SessionRecord& record = file->record;
    const bool is_own = record.session == session;
    (is_own ? own : of_others).insert(record.path.begin(), record.path.end());
    if (is_own) {
      files.records.push_back(path);
    }
  }
  if (files.records.empty()) {
    return files;
  }
  const Blocks blocks(env, dir);
  blocks.AddBeginnings(own);
  blocks.AddBeginnings(of_others);
  blocks.AddUnclaimedStates(own, of_others);
  absl::erase_if(own, [&](const NodeId& id) { return of_others.contains(id); });
  const NodeSet needed = blocks.NeededBeside(own);
  absl::erase_if(own, [&](const NodeId& id) { return needed.contains(id); });
  files.blocks = blocks.PathsOf(own);
  return files;
}

}  // namespace everwarm::store
