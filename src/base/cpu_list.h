// Lists of CPUs, as taskset(1) writes them.
#ifndef EVERWARM_BASE_CPU_LIST_H_
#define EVERWARM_BASE_CPU_LIST_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace everwarm {

// "0,2,4-7": numbers and ranges, ascending and without repetition in the
// result.
// Errors: kInvalidArgument names what is not one, or a CPU beyond 4,095.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// Those that this process may run on, ascending; empty where the system does
// not tell.
std::vector<uint32_t> AvailableCpus();

}  // namespace everwarm

#endif  // EVERWARM_BASE_CPU_LIST_H_
