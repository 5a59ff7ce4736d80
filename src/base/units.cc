#include "base/units.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace everwarm {
namespace {

// Splits "12.5GiB" into its number and its unit.
absl::StatusOr<std::pair<double, std::string_view>> SplitNumber(
    std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string_view digits = text.substr(0, end);
  double number = 0;
  if (digits.empty() ||
      !absl::SimpleAtod(absl::string_view(digits.data(), digits.size()),
                        &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' does not begin with a number"));
  }
  return std::make_pair(number, end == std::string_view::npos
                                    ? std::string_view()
                                    : text.substr(end));
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  EW_ASSIGN_OR_RETURN(const auto parts, SplitNumber(text));
  const auto& [number, unit] = parts;
  constexpr std::array<std::pair<std::string_view, double>, 12> kUnits = {{
      {"", 1},
      {"B", 1},
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0},
      {"KB", 1e3},
      {"kB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"K", 1024.0},
  }};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) {
      const double bytes = std::floor(number * factor);
      if (bytes >= 9.2e18) {
        return absl::InvalidArgumentError(
            absl::StrCat("size '", std::string(text), "' is too large"));
      }
      return static_cast<uint64_t>(bytes);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("size '", std::string(text),
                   "' has an unknown unit; use bytes, KiB, MiB, GiB, TiB, KB, "
                   "MB, GB or TB"));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB",
                                                 "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), unit == 0 ? "%.0f %s" : "%.1f %s",
                value, kNames[unit]);
  return buffer.data();
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  EW_ASSIGN_OR_RETURN(const auto parts, SplitNumber(text));
  const auto& [number, unit] = parts;
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {{
      {"", 1000},
      {"ms", 1},
      {"s", 1000},
      {"m", 60000},
      {"h", 3600000},
      {"d", 86400000},
  }};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) {
      const double ms = number * factor;
      constexpr std::chrono::milliseconds kMost = kLongestDuration;
      // Not the other way round: true for what is no number, too.
      if (!(ms <= static_cast<double>(kMost.count()))) {
        return absl::InvalidArgumentError(
            absl::StrCat("duration '", std::string(text),
                         "' is too long; at most 36500d are possible"));
      }
      return std::chrono::milliseconds(static_cast<int64_t>(ms));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("duration '", std::string(text),
                   "' has an unknown unit; use ms, s, m, h or d"));
}

}  // namespace everwarm
