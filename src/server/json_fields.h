// Fields of a request, typed and checked: what is absent or null is nothing,
// what has the wrong type or size is an error that names the field.
//
// Threads: pure, any.
// Errors:  kInvalidArgument with the field as its param (api_error.h).
#ifndef EVERWARM_SERVER_JSON_FIELDS_H_
#define EVERWARM_SERVER_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/json_text.h"

namespace everwarm::server {

// Null when the field is absent or null.
const Json* FindField(const Json& object, const char* name);

absl::StatusOr<std::optional<std::string>> OptionalString(const Json& object,
                                                          const char* name);
absl::StatusOr<std::string> RequiredString(const Json& object,
                                           const char* name);
// The same for an object at the place `where` in the body, which errors name;
// StringIn() is empty when the field is absent.
absl::StatusOr<std::string> StringIn(const Json& object, const char* name,
                                     const std::string& where);
absl::StatusOr<std::string> RequiredStringIn(const Json& object,
                                             const char* name,
                                             const std::string& where);
absl::StatusOr<bool> BoolOr(const Json& object, const char* name,
                            bool otherwise);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = 0;
};
// Also takes a whole number that is written as 5.0.
absl::StatusOr<std::optional<int64_t>> OptionalInteger(const Json& object,
                                                       const char* name,
                                                       IntegerRange range);

struct NumberRange {
  double min = 0;
  double max = 0;
};
absl::StatusOr<std::optional<double>> OptionalNumber(const Json& object,
                                                     const char* name,
                                                     NumberRange range);

// An error unless the field is absent, null, false, 0, or empty text, array or
// object: for what the API has and we do not do.
absl::Status RefuseField(const Json& object, const char* name);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_JSON_FIELDS_H_
