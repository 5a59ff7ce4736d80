// What a cache directory holds, for people: no model and no lock is needed, and
// nothing is changed.
//
// Threads:  any.
// Blocks:   one read for each file.
// Errors:   kNotFound, there is no such directory. Files that a running server
//           removes meanwhile are left out.
#ifndef EVERWARM_STORE_INSPECT_H_
#define EVERWARM_STORE_INSPECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cache/session_record.h"
#include "store/block_file.h"
#include "store/env.h"

namespace everwarm::store {

// A path from the root to a block that no other continues.
struct StoredConversation {
  NodeId root;
  NodeId leaf;
  // From the start up to the leaf's last token.
  TokenPos tokens = 0;
  // The same, as far as blocks are there without a gap from the start, and
  // there is a state of each recurrent group. Window groups keep no more than
  // their last blocks, so less is not damage.
  TokenPos reachable_tokens = 0;
  // Files of the path, those that it shares with others too.
  uint64_t blocks = 0;
  uint64_t states = 0;
  uint64_t bytes = 0;  // of both
  Clock::Wall last_used;
};

// What the records of one session say together.
struct StoredSession {
  cache::SessionId id;
  // Directions in which it went on: edits, retries and forks are others.
  uint64_t conversations = 0;
  // The longest of them, as far as its blocks are there.
  TokenPos tokens = 0;
  Clock::Wall last_used;
  // All were closed.
  bool closed = true;
};

// What headers say; empty where a group has no entry.
struct StoredGroup {
  // Of the entry that is furthest from the start.
  GroupScheme scheme;
  TokenPos furthest = 0;
  // The codec of the one nearest to it; another where the first tokens have
  // their own.
  std::string first_codec;
  TokenPos nearest = 0;
};

struct StoredFingerprint {
  Fingerprint fingerprint;
  uint64_t entries = 0;  // blocks and states
  uint64_t bytes = 0;
  uint64_t states = 0;
  uint64_t state_bytes = 0;
  // Of all spans: what conversations or groups share counts once.
  uint64_t tokens = 0;
  // Nothing without entries.
  std::optional<Clock::Wall> oldest_use;
  std::optional<Clock::Wall> newest_use;
  std::vector<StoredGroup> groups;
  uint64_t damaged = 0;
  // Most recently used first.
  std::vector<StoredConversation> conversations;
  std::vector<StoredSession> sessions;
};

struct DirectoryReport {
  std::vector<StoredFingerprint> fingerprints;
  uint64_t set_aside_files = 0;
  uint64_t set_aside_bytes = 0;
  uint64_t temp_files = 0;
  uint64_t temp_bytes = 0;
  // All of the above and the rest: what counts against a cap.
  uint64_t total_bytes = 0;
  // Under a fingerprint's name, and not looked into: no directory (a link leads
  // out of the cache), or one that cannot be listed.
  std::vector<absl::Status> refused;
};

absl::StatusOr<DirectoryReport> InspectDirectory(Env& env,
                                                 const std::string& dir);

// Reads one block's file as a whole and checks all that can be checked.
// Errors: as a header's in header_reader.h; kDataLoss also for the payload.
absl::StatusOr<BlockHeader> VerifyBlockFile(Env& env, const std::string& path);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_INSPECT_H_
