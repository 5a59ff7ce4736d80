// Random lives of a machine, each told by its number.
//
// Several conversations are published, extended, forked, evicted and flushed;
// processes crash, restart and are refused; the disk fails, fills and loses
// power; files are damaged. A World compares with what must be.
#ifndef EVERWARM_TESTS_TORTURE_HISTORY_H_
#define EVERWARM_TESTS_TORTURE_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/torture/counts.h"

namespace everwarm::torture {

// What went wrong; empty if all is well. The same number gives the same
// history.
// `logger` hears of every step.
std::vector<std::string> RunHistory(uint64_t number, Counts* counts,
                                    Logger logger = NullLogger());

}  // namespace everwarm::torture

#endif  // EVERWARM_TESTS_TORTURE_HISTORY_H_
