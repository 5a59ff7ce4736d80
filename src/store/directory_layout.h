// Names in a cache directory, beside those of fingerprints' directories
// (docs/format.md).
#ifndef EVERWARM_STORE_DIRECTORY_LAYOUT_H_
#define EVERWARM_STORE_DIRECTORY_LAYOUT_H_

#include <string>
#include <string_view>

namespace everwarm::store {

// Whoever writes holds it.
inline constexpr char kLockName[] = "lock";
// Files that could not be used.
inline constexpr char kDamagedDirName[] = "damaged";
// Hashes of weights files (fingerprint.h).
inline constexpr char kWeightsMemoName[] = "weights.memo";

// Files that are being written. Whoever holds the lock may remove those of
// others: they are dead.
inline constexpr std::string_view kTempPrefix = "tmp-";
inline std::string TempName(std::string_view rest) {
  return std::string(kTempPrefix).append(rest);
}
inline bool IsTempName(std::string_view name) {
  return name.substr(0, kTempPrefix.size()) == kTempPrefix;
}

// The name of a file without its directory.
inline std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_DIRECTORY_LAYOUT_H_
