// What was tried, and what came of it; the numbers of the final table.
#ifndef EVERWARM_TESTS_TORTURE_COUNTS_H_
#define EVERWARM_TESTS_TORTURE_COUNTS_H_

#include <cstdint>

namespace everwarm::torture {

// How a process ended without warning, by what became of what was not synced.
struct CrashCounts {
  uint64_t kept = 0;
  uint64_t dropped = 0;
  uint64_t torn = 0;
  uint64_t reordered = 0;

  uint64_t all() const { return kept + dropped + torn + reordered; }
};

// How often a disk began to do so; then it does in up to 300 of 1,000 calls.
struct FaultCounts {
  uint64_t read_error = 0;
  uint64_t short_read = 0;
  uint64_t flipped_read = 0;
  uint64_t write_error = 0;
  uint64_t no_space = 0;
  uint64_t sync_error = 0;
  uint64_t name_error = 0;
  // All the time, not by chance.
  uint64_t little_space = 0;

  uint64_t all() const {
    return read_error + short_read + flipped_read + write_error + no_space +
           sync_error + name_error + little_space;
  }
};

// Of files.
struct DamageCounts {
  uint64_t cut = 0;
  uint64_t flipped = 0;
  uint64_t swapped = 0;
  uint64_t removed = 0;
  uint64_t zeroed = 0;
  // Something that is no file is in its place.
  uint64_t replaced = 0;

  uint64_t all() const {
    return cut + flipped + swapped + removed + zeroed + replaced;
  }
};

struct Counts {
  uint64_t histories = 0;
  uint64_t enumerated_crashes = 0;
  // Enumerated ones included.
  CrashCounts crashes;
  uint64_t orderly_ends = 0;
  uint64_t restarts = 0;
  // Refused, while the first one ran.
  uint64_t second_processes = 0;
  FaultCounts faults;
  DamageCounts damages;
  // By the cap, at a start or later, and for want of room.
  uint64_t evictions = 0;
  // Blocks that were read again in the background, and damage that this found.
  uint64_t scrubbed = 0;
  uint64_t scrub_finds = 0;
  uint64_t flushes = 0;
  // Blocks that were compared byte by byte after a restart, and tokens of
  // sequences that were compared where they were used.
  uint64_t blocks_read = 0;
  uint64_t tokens_compared = 0;
  uint64_t acknowledged_tokens = 0;
  // Both must be 0.
  uint64_t wrong_bytes = 0;
  uint64_t lost_tokens = 0;
};

}  // namespace everwarm::torture

#endif  // EVERWARM_TESTS_TORTURE_COUNTS_H_
