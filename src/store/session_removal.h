// Which files of a model's directory are one session's alone.
//
// Threads:  any.
// Blocks:   a read of each header and record of the directory.
#ifndef EVERWARM_STORE_SESSION_REMOVAL_H_
#define EVERWARM_STORE_SESSION_REMOVAL_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/session_record.h"
#include "store/env.h"

namespace everwarm::store {

// Files of the kind in a directory, in order.
// Errors: those of Env::List().
absl::StatusOr<std::vector<std::string>> ListBlockPaths(Env& env,
                                                        const std::string& dir);
absl::StatusOr<std::vector<std::string>> ListSessionPaths(
    Env& env, const std::string& dir);

struct SessionFiles {
  // Found by way of the blocks on a path, so they go before these: a try that
  // ends in between can be made again.
  std::vector<std::string> beside_paths;
  std::vector<std::string> on_paths;
  std::vector<std::string> records;
  // Files that could not be read just now, and why. They may be the session's.
  std::vector<std::pair<std::string, absl::Status>> unread;
};

// Its records, and the blocks on their paths, except those that are on the path
// of another session's record or that a block off these paths builds on. Blocks
// on a path are known by their names, whatever is in the files. Shorter tails
// that these blocks have replaced go with them, and so do states, and damaged
// blocks of which nobody knows whose they are. What a conversation without a
// session came to is not told from the session's where it ends before it.
// Errors: those of Env::List().
absl::StatusOr<SessionFiles> FilesOfSession(Env& env, const std::string& dir,
                                            const cache::SessionId& session);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_SESSION_REMOVAL_H_
