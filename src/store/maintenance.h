// Looking after a cache directory: reading all of it, and clearing it up.
//
// Threads:  one at a time.
// Blocks:   for as long as the disk takes.
// Not here: what a running store does by itself (store_scan.h, disk_budget.h).
#ifndef EVERWARM_STORE_MAINTENANCE_H_
#define EVERWARM_STORE_MAINTENANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cache/session_record.h"
#include "store/env.h"
#include "store/session_removal.h"

namespace everwarm::store {

struct VerifyReport {
  // Blocks that were read.
  uint64_t files = 0;
  // And records of sessions.
  uint64_t sessions = 0;
  uint64_t bytes = 0;
  // Not what their name says, or not readable; directories that cannot be
  // looked into, too.
  uint64_t damaged = 0;
  // Whole, but of another version of the format.
  uint64_t other_version = 0;
};

// Reads every block and session of the directory and checks all that can be
// checked. Changes nothing, and may run beside a server; what that removes
// meanwhile is left out. Calls damage(path, why) for each damaged file, and
// progress(files done, of all). Errors: kNotFound, there is no such directory.
absl::StatusOr<VerifyReport> VerifyDirectory(
    Env& env, const std::string& dir,
    absl::FunctionRef<void(const std::string&, const absl::Status&)> damage,
    absl::FunctionRef<void(uint64_t, uint64_t)> progress);

// What a clean-up did.
struct Removed {
  uint64_t files = 0;
  uint64_t bytes = 0;
  // Files that are still there.
  uint64_t failed = 0;
  // Why, or what else could not be done or looked into; OK: all was done.
  absl::Status failure;
};

// A directory that nobody else uses while this exists. What is removed stays
// removed after a power loss.
class DirectoryCleaner {
 public:
  // Errors: kNotFound, no such directory, or nothing of a cache in it;
  //         kFailedPrecondition, a server uses it.
  static absl::StatusOr<DirectoryCleaner> Open(Env* env, std::string dir);

  // Temporary files of processes that died, and what was set aside as damaged.
  Removed RemoveLeftovers();
  // All blocks but those of these fingerprints.
  Removed RemoveOtherModels(const std::vector<Fingerprint>& keep);
  // Blocks that neither they nor anything that continues them was used since,
  // and sessions that were not.
  Removed RemoveUnusedSince(Clock::Wall limit);
  // Of one session: what only it came to, and the records that say so. What
  // other sessions came to stays, and what a longer conversation begins with.
  // Leftovers go as well, and so do damaged blocks: nobody knows whose they
  // are. What cannot be read may be the session's: then it stays as a whole,
  // which is a failure. Errors: kNotFound, no record names it.
  absl::StatusOr<Removed> RemoveSession(const cache::SessionId& session);
  // Everything: blocks, sessions, leftovers, and what is known of weights
  // files. Files that are not a cache's stay.
  Removed RemoveAll();

 private:
  DirectoryCleaner(Env* env, std::string dir, std::unique_ptr<FileLock> lock)
      : env_(env), dir_(std::move(dir)), lock_(std::move(lock)) {}

  // Of all fingerprints; what cannot be looked into is a failure.
  std::vector<std::string> ModelDirs(Removed& removed) const;
  std::vector<std::string> FilesIn(const std::string& dir,
                                   Removed& removed) const;
  void RemoveFile(const std::string& path, Removed& removed);
  void RemoveFilesIn(const std::string& dir, Removed& removed);
  void RemoveSetAside(Removed& removed);
  void RemoveSessionFiles(const std::string& dir, const SessionFiles& files,
                          Removed& removed);

  Env* env_;
  std::string dir_;
  std::unique_ptr<FileLock> lock_;
};

// The fingerprint whose hexadecimal form begins with `digits`.
// Errors: kInvalidArgument, none or several do; the message says which.
absl::StatusOr<Fingerprint> FindFingerprint(Env& env, const std::string& dir,
                                            const std::string& digits);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_MAINTENANCE_H_
