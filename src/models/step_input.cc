#include "models/step_input.h"

#include <cstddef>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace everwarm::models {
namespace {

using Table = absl::Span<std::byte* const>;

absl::Status CheckTable(const ModelGroup& group, const Table& table,
                        const StepRow& row) {
  if (group.recurrent) {
    if (table.size() != 1 || table[0] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sequence ", row.sequence, " has ",
          table.size() == 1 ? "no address" : absl::StrCat(table.size()),
          " for its state of group '", group.name, "', expected one address"));
    }
    return absl::OkStatus();
  }
  const uint32_t span = row.position / group.geometry.rest.block_tokens();
  if (span >= table.size() || table[span] == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", row.sequence, " has no block of group '",
                     group.name, "' for position ", row.position));
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const StepInput& input, const StepRow& row,
                      const std::vector<ModelGroup>& groups,
                      uint32_t vocab_size) {
  if (row.token < 0 || static_cast<uint32_t>(row.token) >= vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token ", row.token, " is not in the vocabulary of ", vocab_size));
  }
  if (row.sequence >= input.sequences.size() ||
      input.sequences[row.sequence].groups.size() != groups.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", row.sequence,
                                                   " has no block tables for ",
                                                   groups.size(), " groups"));
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    EW_RETURN_IF_ERROR(
        CheckTable(groups[g], input.sequences[row.sequence].groups[g], row));
  }
  return absl::OkStatus();
}

// A state takes the rows of one sequence, so no two sequences may share it.
absl::Status CheckStates(const StepInput& input, size_t group,
                         const std::vector<std::optional<TokenPos>>& next) {
  absl::flat_hash_map<const std::byte*, size_t> owners;
  for (size_t s = 0; s < next.size(); ++s) {
    if (!next[s].has_value()) {
      continue;
    }
    const auto [owner, first] =
        owners.emplace(input.sequences[s].groups[group][0], s);
    if (!first) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequences ", owner->second, " and ", s,
                       " have one state between them"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStepInput(const StepInput& input,
                            const std::vector<ModelGroup>& groups,
                            uint32_t vocab_size) {
  if (input.rows.empty()) {
    return absl::InvalidArgumentError("a step without rows");
  }
  // Of each sequence that has rows: the position after the last one so far.
  std::vector<std::optional<TokenPos>> next(input.sequences.size());
  for (const StepRow& row : input.rows) {
    EW_RETURN_IF_ERROR(CheckRow(input, row, groups, vocab_size));
    std::optional<TokenPos>& expected = next[row.sequence];
    if (expected.has_value() && *expected != row.position) {
      return absl::InvalidArgumentError(
          absl::StrCat("position ", row.position, " of sequence ", row.sequence,
                       " follows ", *expected - 1));
    }
    expected = row.position + 1;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].recurrent) {
      EW_RETURN_IF_ERROR(CheckStates(input, g, next));
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::models
