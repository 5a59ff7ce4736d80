// What a BlockStore is told, and what it works with.
#ifndef EVERWARM_STORE_STORE_OPTIONS_H_
#define EVERWARM_STORE_STORE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/units.h"
#include "store/block_file.h"
#include "store/env.h"

namespace everwarm::store {

struct StoreOptions {
  // Made with mode 0700 when it is absent.
  std::string dir;
  Fingerprint fingerprint;
  // By GroupIndex; all but states of one block size.
  std::vector<BySpan<GroupScheme>> groups;

  // All files in `dir`, whoever wrote them, in bytes on the disk. Never passed.
  uint64_t max_bytes = 50 * kGiB;
  // Left free on the file system, but no more than a tenth of it.
  uint64_t min_free_bytes = kGiB;
  // False: payloads are not checked when they are read; headers always are.
  bool verify_payload = true;

  // Store() refuses beyond either.
  size_t max_queued_stores = 1024;
  uint64_t max_queued_bytes = kGiB;
  // One directory sync makes this much durable.
  size_t max_batch_blocks = 32;
  uint64_t max_batch_bytes = 64 * kMiB;
  // Tasks that read at the same time, and reads in flight in each.
  size_t reader_tasks = 2;
  size_t reads_in_flight = 16;
  // A file's time is not set again before this.
  std::chrono::milliseconds touch_interval{60000};
  // How fast blocks are read again to find damage; 0: they are not.
  uint64_t scrub_bytes_per_second = 0;

  absl::Status Validate() const;
};

// All outlive the store. Tasks that are left in an executor afterwards do
// nothing.
struct StoreParts {
  Env* env = nullptr;
  const Clock* clock = nullptr;
  // Writes, removals and touches; one task at a time, whatever its threads.
  Executor* writers = nullptr;
  Executor* readers = nullptr;
  Logger logger;
  // Reads of scrub_bytes_per_second; one task at a time. May be null without
  // these.
  Executor* scrubbers = nullptr;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_STORE_OPTIONS_H_
