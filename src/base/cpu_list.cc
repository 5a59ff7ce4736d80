#include "base/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace everwarm {
namespace {

constexpr uint32_t kMostCpus = 4096;

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text) {
  std::vector<uint32_t> cpus;
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',');
  for (const std::string& part : parts) {
    const std::pair<std::string, std::string> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const bool range = part.find('-') != std::string::npos;
    uint32_t first = 0;
    uint32_t last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(range ? ends.second : ends.first, &last) ||
        first > last) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is neither a CPU's number nor a range such as 4-7"));
    }
    if (last >= kMostCpus) {
      return absl::InvalidArgumentError(absl::StrCat("there is no CPU ", last));
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) {
      cpus.push_back(cpu);
    }
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<uint32_t> AvailableCpus() {
  std::vector<uint32_t> cpus;
#ifdef __linux__
  cpu_set_t* set = CPU_ALLOC(kMostCpus);
  const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  if (set != nullptr && sched_getaffinity(0, bytes, set) == 0) {
    for (uint32_t cpu = 0; cpu < kMostCpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) {
        cpus.push_back(cpu);
      }
    }
  }
  CPU_FREE(set);
#endif
  return cpus;
}

}  // namespace everwarm
