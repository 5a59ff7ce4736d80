// What is in the cache directory, what it takes, and what goes first.
//
// The index knows every file that counts against the cap: blocks of our
// fingerprint, blocks of others, files set aside. Eviction takes files set
// aside first, then the block that was used longest ago among those that no
// other block continues: leaves before their ancestors, whoever wrote them. A
// state is always a leaf: its place in the tree is that of its span, but
// nothing is built on it. A session's record (session_file.h) goes a while
// after what it names.
//
// Threads:  none of its own; the owner's mutex guards it.
// Not here: files. The owner removes them and says so.
#ifndef EVERWARM_STORE_BLOCK_INDEX_H_
#define EVERWARM_STORE_BLOCK_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"

namespace everwarm::store {

// Which fingerprint's directory a file lies in; 0 is ours.
using DirIndex = uint32_t;
inline constexpr DirIndex kOwnDir = 0;

struct FileId {
  DirIndex dir = kOwnDir;
  BlockKey key;
  friend bool operator==(const FileId&, const FileId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FileId& id) {
    return H::combine(std::move(h), id.dir, id.key);
  }
};

struct IndexEntry {
  FileId id;
  // Unknown for another fingerprint's file until its header was read.
  NodeId parent;
  // As unknown.
  bool is_state = false;
  Clock::Wall last_used;
  // What the file's own time says; behind last_used until it is touched.
  Clock::Wall file_time;
  uint64_t bytes = 0;
  // Counts up with every Add(): tells a file from a later one of the same name.
  uint64_t generation = 0;
};

// A file outside the tree of blocks: set aside, or unreadable.
struct LooseFile {
  std::string path;
  uint64_t bytes = 0;
  Clock::Wall time;
};

// What could not be removed a moment ago: looked past, for this time.
struct Unremovable {
  absl::flat_hash_set<FileId> files;
  // All that is in them.
  absl::flat_hash_set<DirIndex> dirs;
  absl::flat_hash_set<std::string> loose;
};

class BlockIndex {
 public:
  BlockIndex() = default;
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // Replaces an entry of the same id. Returns the generation.
  uint64_t Add(IndexEntry entry);
  // The entry is gone; its bytes are still counted until Settle(), because the
  // file is not removed yet. False when there is none.
  bool Remove(const FileId& id);
  // Those bytes left the disk (or are counted elsewhere now).
  void Settle(uint64_t bytes) { limbo_bytes_ -= bytes; }
  // Null when there is none. Valid until the next change.
  const IndexEntry* Find(const FileId& id) const;
  void SetLastUsed(const FileId& id, Clock::Wall time);
  // When something is used at `now`: later than all uses before it, whatever a
  // clock says that was set back.
  Clock::Wall NextUse(Clock::Wall now) const {
    return std::max(now, newest_use_ + Clock::Wall::duration(1));
  }
  void SetFileTime(const FileId& id, Clock::Wall time);

  void AddLoose(LooseFile file);
  // Bytes are in limbo as with Remove(); nothing when there is none.
  std::optional<LooseFile> RemoveLoose(const std::string& path);
  std::optional<LooseFile> OldestLoose(const Unremovable& past = {}) const;

  // The leaf that was used longest ago, except blocks of `keep`.
  std::optional<IndexEntry> OldestLeaf(const absl::flat_hash_set<NodeId>& keep,
                                       const Unremovable& past = {}) const;
  std::vector<IndexEntry> EntriesOf(DirIndex dir) const;

  // Bytes about to be written, counted before they are on the disk.
  void Reserve(uint64_t bytes) { reserved_bytes_ += bytes; }
  void Release(uint64_t bytes) { reserved_bytes_ -= bytes; }
  // Files that are never removed: the lock, names that are not ours.
  void AddFixed(uint64_t bytes) { fixed_bytes_ += bytes; }
  // The directories themselves, which grow with their entries.
  void set_directory_bytes(uint64_t bytes) { directory_bytes_ = bytes; }

  // All that counts against the cap.
  uint64_t bytes() const {
    return entry_bytes_ + loose_bytes_ + limbo_bytes_ + reserved_bytes_ +
           fixed_bytes_ + directory_bytes_;
  }
  uint64_t evictable_bytes() const { return entry_bytes_ + loose_bytes_; }
  // Blocks of our fingerprint.
  size_t own_blocks() const { return own_blocks_; }

 private:
  using NodeKey = std::pair<DirIndex, NodeId>;
  struct Node {
    // Of blocks.
    std::vector<GroupIndex> groups;
    // Blocks and states whose parent this is.
    uint32_t children = 0;
  };
  // In the order in which leaves go.
  struct LeafOrder {
    Clock::Wall last_used;
    uint64_t generation = 0;
    FileId id;
    bool operator<(const LeafOrder& other) const {
      if (last_used != other.last_used) {
        return last_used < other.last_used;
      }
      return generation < other.generation;
    }
  };
  static LeafOrder OrderOf(const IndexEntry& entry);
  // Adds or removes the entries of a node from leaves_.
  void SetLeaf(const NodeKey& node, bool leaf);
  void DropNodeIfUnused(const NodeKey& node);

  absl::flat_hash_map<FileId, IndexEntry> entries_;
  absl::flat_hash_map<NodeKey, Node> nodes_;
  std::set<LeafOrder> leaves_;
  absl::flat_hash_map<std::string, LooseFile> loose_;
  uint64_t next_generation_ = 1;
  Clock::Wall newest_use_;
  size_t own_blocks_ = 0;
  uint64_t entry_bytes_ = 0;
  uint64_t loose_bytes_ = 0;
  uint64_t limbo_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t fixed_bytes_ = 0;
  uint64_t directory_bytes_ = 0;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_BLOCK_INDEX_H_
