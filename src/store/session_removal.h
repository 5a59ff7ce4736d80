// Which files of a model's directory are one session's alone.
//
// Threads:  any.
// Blocks:   a read of each header and record of the directory.
#ifndef EVERWARM_STORE_SESSION_REMOVAL_H_
#define EVERWARM_STORE_SESSION_REMOVAL_H_

#include <string>
#include <vector>

#include "cache/session_record.h"
#include "store/env.h"

namespace everwarm::store {

// Files of the kind in a directory, in order.
std::vector<std::string> ListBlockPaths(Env& env, const std::string& dir);
std::vector<std::string> ListSessionPaths(Env& env, const std::string& dir);

struct SessionFiles {
  std::vector<std::string> blocks;
  std::vector<std::string> records;
};

// Its records, and the blocks on their paths, except those that are on the path
// of another session's record or that a block off these paths builds on.
// Shorter tails that these blocks have replaced go with them, and so do states.
// What a conversation without a session came to is not told from the session's
// where it ends before it.
SessionFiles FilesOfSession(Env& env, const std::string& dir,
                            const cache::SessionId& session);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_SESSION_REMOVAL_H_
