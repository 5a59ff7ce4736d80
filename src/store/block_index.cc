#include "store/block_index.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "store/session_file.h"

namespace everwarm::store {

namespace {

// A record is written a little before the last blocks that it names, and must
// outlast them: without it they would be nobody's.
constexpr std::chrono::minutes kRecordGrace{10};

bool IsOwnBlock(const FileId& id) {
  return id.dir == kOwnDir && !IsSession(id.key);
}

}  // namespace

BlockIndex::LeafOrder BlockIndex::OrderOf(const IndexEntry& entry) {
  const Clock::Wall goes_as = IsSession(entry.id.key)
                                  ? entry.last_used + kRecordGrace
                                  : entry.last_used;
  return {goes_as, entry.generation, entry.id};
}

uint64_t BlockIndex::Add(IndexEntry entry) {
  // One name, one file: the new one has taken the old one's place.
  if (const IndexEntry* old = Find(entry.id); old != nullptr) {
    const uint64_t old_bytes = old->bytes;
    Remove(entry.id);
    Settle(old_bytes);
  }
  entry.generation = next_generation_++;
  newest_use_ = std::max(newest_use_, entry.last_used);
  const NodeKey node_key{entry.id.dir, entry.id.key.node};
  const NodeKey parent_key{entry.id.dir, entry.parent};
  // The parent is a leaf no more.
  if (nodes_[parent_key].children++ == 0) {
    SetLeaf(parent_key, false);
  }
  if (entry.is_state) {
    leaves_.insert(OrderOf(entry));
  } else {
    Node& node = nodes_[node_key];
    node.groups.push_back(entry.id.key.group);
    if (node.children == 0) {
      leaves_.insert(OrderOf(entry));
    }
  }
  entry_bytes_ += entry.bytes;
  own_blocks_ += IsOwnBlock(entry.id) ? 1 : 0;
  const uint64_t generation = entry.generation;
  const FileId id = entry.id;
  entries_.insert_or_assign(id, std::move(entry));
  return generation;
}

bool BlockIndex::Remove(const FileId& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return false;
  }
  const IndexEntry entry = found->second;
  leaves_.erase(OrderOf(entry));
  entries_.erase(found);
  entry_bytes_ -= entry.bytes;
  limbo_bytes_ += entry.bytes;
  own_blocks_ -= IsOwnBlock(id) ? 1 : 0;

  if (!entry.is_state) {
    const NodeKey node_key{id.dir, id.key.node};
    std::vector<GroupIndex>& groups = nodes_[node_key].groups;
    groups.erase(std::find(groups.begin(), groups.end(), id.key.group));
    DropNodeIfUnused(node_key);
  }
  const NodeKey parent_key{id.dir, entry.parent};
  if (--nodes_[parent_key].children == 0) {
    SetLeaf(parent_key, true);
    DropNodeIfUnused(parent_key);
  }
  return true;
}

void BlockIndex::SetLeaf(const NodeKey& node, bool leaf) {
  for (const GroupIndex group : nodes_[node].groups) {
    const IndexEntry& entry =
        entries_.at(FileId{node.first, BlockKey{node.second, group}});
    if (leaf) {
      leaves_.insert(OrderOf(entry));
    } else {
      leaves_.erase(OrderOf(entry));
    }
  }
}

void BlockIndex::DropNodeIfUnused(const NodeKey& node) {
  const auto found = nodes_.find(node);
  if (found != nodes_.end() && found->second.children == 0 &&
      found->second.groups.empty()) {
    nodes_.erase(found);
  }
}

const IndexEntry* BlockIndex::Find(const FileId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

void BlockIndex::SetLastUsed(const FileId& id, Clock::Wall time) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return;
  }
  const bool leaf = leaves_.erase(OrderOf(found->second)) > 0;
  found->second.last_used = time;
  newest_use_ = std::max(newest_use_, time);
  if (leaf) {
    leaves_.insert(OrderOf(found->second));
  }
}

void BlockIndex::SetFileTime(const FileId& id, Clock::Wall time) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) {
    found->second.file_time = time;
  }
}

void BlockIndex::AddLoose(LooseFile file) {
  // As in Add(): only one file can have the name.
  if (const std::optional<LooseFile> old = RemoveLoose(file.path)) {
    Settle(old->bytes);
  }
  loose_bytes_ += file.bytes;
  loose_[file.path] = std::move(file);
}

std::optional<LooseFile> BlockIndex::RemoveLoose(const std::string& path) {
  const auto found = loose_.find(path);
  if (found == loose_.end()) {
    return std::nullopt;
  }
  LooseFile file = std::move(found->second);
  loose_.erase(found);
  loose_bytes_ -= file.bytes;
  limbo_bytes_ += file.bytes;
  return file;
}

std::optional<LooseFile> BlockIndex::OldestLoose(
    const Unremovable& past) const {
  const LooseFile* oldest = nullptr;
  for (const auto& [path, file] : loose_) {
    if ((oldest == nullptr || file.time < oldest->time) &&
        !past.loose.contains(path)) {
      oldest = &file;
    }
  }
  if (oldest == nullptr) {
    return std::nullopt;
  }
  return *oldest;
}

std::optional<IndexEntry> BlockIndex::OldestLeaf(
    const absl::flat_hash_set<NodeId>& keep, const Unremovable& past) const {
  for (const LeafOrder& leaf : leaves_) {
    if (!keep.contains(leaf.id.key.node) && !past.dirs.contains(leaf.id.dir) &&
        !past.files.contains(leaf.id)) {
      return entries_.at(leaf.id);
    }
  }
  return std::nullopt;
}

std::vector<IndexEntry> BlockIndex::EntriesOf(DirIndex dir) const {
  std::vector<IndexEntry> result;
  for (const auto& [id, entry] : entries_) {
    if (id.dir == dir) {
      result.push_back(entry);
    }
  }
  return result;
}

}  // namespace everwarm::store
