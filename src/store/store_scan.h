// What a store does with its directory before anything else. Internal to
// store/.
#ifndef EVERWARM_STORE_STORE_SCAN_H_
#define EVERWARM_STORE_STORE_SCAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cache/tier.h"
#include "store/store_state.h"

namespace everwarm::store {

// Makes and locks the directory, counts all files in it, reads the headers of
// our fingerprint, removes temporary files, sets damaged ones aside, and evicts
// down to the cap. Returns our entries, parents before children. Errors: as
// BlockStore::Open().
absl::StatusOr<std::vector<cache::TierEntry>> OpenDirectory(StoreState& state);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_STORE_SCAN_H_
