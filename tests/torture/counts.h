// What was tried, and what came of it; the numbers of the final table.
#ifndef EVERWARM_TESTS_TORTURE_COUNTS_H_
#define EVERWARM_TESTS_TORTURE_COUNTS_H_

#include <cstdint>

namespace everwarm::torture {

struct Counts {
  uint64_t histories = 0;
  uint64_t enumerated_crashes = 0;
  // Ends of a process without warning, enumerated ones included.
  uint64_t crashes = 0;
  uint64_t restarts = 0;
  uint64_t damages = 0;
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
