// The directories that a running store writes to. Somebody may remove them, or
// have put something else in their place: then it is noticed before anything is
// written.
//
// Threads:  the writer task, or Open().
// Blocks:   as Env.
#ifndef EVERWARM_STORE_OWN_DIRECTORY_H_
#define EVERWARM_STORE_OWN_DIRECTORY_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/env.h"
#include "store/store_state.h"

namespace everwarm::store {

// The lock of a cache directory, which is there. Errors: kFailedPrecondition,
// somebody else has it ("in use by " and `holder`), or it is no regular file;
// the message says which.
absl::StatusOr<std::unique_ptr<FileLock>> LockCacheDirectory(
    Env& env, const std::string& dir,
    std::string_view holder = "another process; give each its own directory");

// kFailedPrecondition: under the name is something, and no directory. A link
// to one is none: its files would be in nobody's count.
absl::Status CheckIsDirectory(Env& env, const std::string& path);

// Makes the directory of our fingerprint, durably.
absl::Status MakeOwnDir(StoreState& state);

// Before anything is written or removed: the directory is still locked here.
// Where all of it was removed it is made and locked anew, and what was in it is
// announced as lost.
// Errors: kFailedPrecondition, another process has it or had it since: nothing
//         in it is ours any more.
absl::Status HoldDirectory(StoreState& state);

// Creates a file of the directory of our fingerprint, for direct I/O. The
// directory is made again where somebody has removed it.
absl::StatusOr<std::unique_ptr<File>> CreateOwnFile(StoreState& state,
                                                    const std::string& path);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_OWN_DIRECTORY_H_
