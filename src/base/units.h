// Sizes and durations as people write them.
#ifndef EVERWARM_BASE_UNITS_H_
#define EVERWARM_BASE_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace everwarm {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// "4GiB", "512MiB", "64KiB", "1.5GiB", "100GB" (decimal), "4096" (bytes).
// kInvalidArgument names the text for anything else, or beyond 2^63.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// "1.4 MiB": at most one decimal.
std::string FormatBytes(uint64_t bytes);

// No duration is longer. What is added to or taken from a time of a clock, in
// nanoseconds of 64 bits (292 years), must not leave its range.
inline constexpr std::chrono::hours kLongestDuration{24 * 36500};

// "300s", "5m", "2h", "30d", "250ms", "0". kInvalidArgument names the text
// otherwise, and beyond kLongestDuration.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text);

}  // namespace everwarm

#endif  // EVERWARM_BASE_UNITS_H_
