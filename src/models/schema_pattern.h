// Regular expressions of JSON schemas in the words of llama.cpp's converter.
//
// The converter follows anchored patterns of plain constructs, lets any string
// pass for others, and writes characters into JSON strings that JSON escapes.
// What comes out of here it follows as it is meant: the strings are JSON, and
// each of them matches the pattern. Characters that JSON writes as escapes (a
// quote, a backslash, control characters) are left out of all that a pattern
// allows.
//
// Pure.
#ifndef EVERWARM_MODELS_SCHEMA_PATTERN_H_
#define EVERWARM_MODELS_SCHEMA_PATTERN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace everwarm::models {

// Repetitions of one thing that a grammar may ask for.
inline constexpr uint32_t kMaxRepetitions = 2000;

// As it was where the converter follows it as it is.
// Errors: kInvalidArgument, no regular expression; kUnimplemented, one that a
// grammar cannot follow. Both say why, without the pattern.
absl::StatusOr<std::string> FollowablePattern(std::string_view pattern);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_SCHEMA_PATTERN_H_
