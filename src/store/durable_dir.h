// Directories whose names survive a loss of power.
#ifndef EVERWARM_STORE_DURABLE_DIR_H_
#define EVERWARM_STORE_DURABLE_DIR_H_

#include <string>

#include "absl/status/status.h"
#include "base/log.h"
#include "store/env.h"

namespace everwarm::store {

// Makes the directory with its missing parents, and its name durable: also one
// that is there already, because whoever made it may have died before it was.
//
// Blocks:  a directory sync for each part of the path.
// Errors:  of Env::MakeDir(); of Env::SyncDir() for the parent. Parents further
//          up that cannot be synced are logged: mostly they are not ours.
absl::Status MakeDurableDir(Env& env, const std::string& path,
                            const Logger& logger);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_DURABLE_DIR_H_
