// What the disk under a cache directory does when it is asked to keep a
// promise, tried out with a few small files and one larger one.
//
// Whether a disk tells the truth about a sync can only be seen by cutting the
// power; what is suspicious is said.
//
// Threads:  one.
// Blocks:   a second or two on a usual disk.
// Not here: what kind of file system it is, and the modes of files (cli/).
#ifndef EVERWARM_STORE_DOCTOR_H_
#define EVERWARM_STORE_DOCTOR_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/env.h"

namespace everwarm::store {

enum class Finding {
  kGood,
  kDoubt,  // it may be all right, and cannot be relied upon
  kBad,
};

struct DiskCheck {
  std::string name;
  Finding finding = Finding::kGood;
  // For a person: what was measured, and what it means where it is not good.
  std::string text;
};

struct DiskReport {
  std::vector<DiskCheck> checks;
  // The worst of those with this name; kGood without one.
  Finding Of(const std::string& name) const;
  Finding worst() const;
};

struct DiskFacts {
  // Contents are gone at a restart of the machine (tmpfs).
  bool in_memory = false;
  // Direct reads and writes were granted.
  bool direct = false;
  // Of the file that speeds are measured with.
  uint64_t test_bytes = uint64_t{64} << 20;
};

// Names of the checks, in the order in which they are made.
inline constexpr char kCheckSpace[] = "space";
inline constexpr char kCheckSync[] = "fsync";
inline constexpr char kCheckDirSync[] = "fsync of a directory";
inline constexpr char kCheckRename[] = "rename";
inline constexpr char kCheckLock[] = "lock";
inline constexpr char kCheckTimes[] = "file times";
inline constexpr char kCheckDirect[] = "O_DIRECT";
inline constexpr char kCheckSpeed[] = "speed";
inline constexpr char kCheckSizes[] = "sizes";

// `dir` exists. Leaves nothing behind, unless the disk refuses to remove.
DiskReport ExamineDisk(Env& env, const Clock& clock, const std::string& dir,
                       const DiskFacts& facts);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_DOCTOR_H_
