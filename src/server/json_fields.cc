#include "server/json_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

absl::Status WrongType(const char* name, const char* wanted,
                       const Json& value) {
  return InvalidRequest(
      absl::StrCat("'", name, "' must be ", wanted, ", and is ", Quoted(value)),
      name);
}

// Nothing unless the value is a whole number of 64 bits.
std::optional<int64_t> AsInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) {
      return std::nullopt;
    }
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) {
    return value.get<int64_t>();
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // 2^53: beyond it neighbouring doubles are more than one apart.
    if (std::trunc(number) == number && std::fabs(number) <= 9007199254740992) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

bool IsNothing(const Json& value) {
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  if (value.is_number()) {
    return value.get<double>() == 0;
  }
  if (value.is_string()) {
    return value.get_ref<const std::string&>().empty();
  }
  return value.empty();  // null, [] and {}
}

}  // namespace

const Json* FindField(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) {
    return nullptr;
  }
  return &*found;
}

absl::StatusOr<std::optional<std::string>> OptionalString(const Json& object,
                                                          const char* name) {
  const Json* value = FindField(object, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    return WrongType(name, "a string", *value);
  }
  return value->get<std::string>();
}

absl::StatusOr<std::string> RequiredString(const Json& object,
                                           const char* name) {
  EW_ASSIGN_OR_RETURN(std::optional<std::string> value,
                      OptionalString(object, name));
  if (!value) {
    return InvalidRequest(absl::StrCat("'", name, "' is missing"), name);
  }
  return *std::move(value);
}

absl::StatusOr<std::string> StringIn(const Json& object, const char* name,
                                     const std::string& where) {
  if (FindField(object, name) == nullptr) {
    return std::string();
  }
  return RequiredStringIn(object, name, where);
}

absl::StatusOr<std::string> RequiredStringIn(const Json& object,
                                             const char* name,
                                             const std::string& where) {
  const Json* value = FindField(object, name);
  if (value != nullptr && value->is_string()) {
    return value->get<std::string>();
  }
  const std::string field = absl::StrCat(where, ".", name);
  return InvalidRequest(
      absl::StrCat("'", field, "' must be a string, and is ",
                   value == nullptr ? "missing" : Quoted(*value)),
      field);
}

absl::StatusOr<bool> BoolOr(const Json& object, const char* name,
                            bool otherwise) {
  const Json* value = FindField(object, name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_boolean()) {
    return WrongType(name, "true or false", *value);
  }
  return value->get<bool>();
}

absl::StatusOr<std::optional<int64_t>> OptionalInteger(const Json& object,
                                                       const char* name,
                                                       IntegerRange range) {
  const Json* value = FindField(object, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number || *number < range.min || *number > range.max) {
    return WrongType(
        name,
        absl::StrCat("a whole number from ", range.min, " to ", range.max)
            .c_str(),
        *value);
  }
  return number;
}

absl::StatusOr<std::optional<double>> OptionalNumber(const Json& object,
                                                     const char* name,
                                                     NumberRange range) {
  const Json* value = FindField(object, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const double number = value->is_number() ? value->get<double>() : NAN;
  // Not a number compares false.
  if (!(number >= range.min && number <= range.max)) {
    return WrongType(
        name,
        absl::StrCat("a number from ", range.min, " to ", range.max).c_str(),
        *value);
  }
  return number;
}

absl::Status RefuseField(const Json& object, const char* name) {
  const Json* value = FindField(object, name);
  if (value == nullptr || IsNothing(*value)) {
    return absl::OkStatus();
  }
  return InvalidRequest(absl::StrCat("'", name, "' is not supported"), name,
                        "unsupported");
}

}  // namespace everwarm::server
