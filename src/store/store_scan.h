// What a store does with its directory before anything else. Internal to
// store/.
#ifndef EVERWARM_STORE_STORE_SCAN_H_
#define EVERWARM_STORE_STORE_SCAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cache/session_record.h"
#include "cache/tier.h"
#include "store/store_state.h"

namespace everwarm::store {

struct FoundInDirectory {
  // Ours, parents before children.
  std::vector<cache::TierEntry> entries;
  std::vector<cache::SessionEntry> sessions;
};

// Makes and locks the directory, counts all files in it, reads the headers and
// sessions of our fingerprint, removes temporary files and sessions of which
// nothing is left, sets damaged files aside, and evicts down to the cap.
// Errors: as BlockStore::Open().
absl::StatusOr<FoundInDirectory> OpenDirectory(StoreState& state);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_STORE_SCAN_H_
