#include "server/json_text.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

// Counts brackets outside strings; whether they match is the parser's business.
bool NestedTooDeep(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return true;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view body) {
  if (NestedTooDeep(body)) {
    return InvalidRequest(absl::StrCat("the body nests more than ",
                                       kMaxJsonDepth, " levels of JSON"));
  }
  Json value;
  try {
    value = Json::parse(body);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = what.find("] "); end != std::string::npos) {
      what.erase(0, end + 2);
    }
    constexpr size_t kLongestReason = 300;
    return InvalidRequest(absl::StrCat("the body is not valid JSON: ",
                                       what.substr(0, kLongestReason)));
  }
  if (!value.is_object()) {
    return InvalidRequest(absl::StrCat(
        "the body must be a JSON object, and is a ", value.type_name()));
  }
  return value;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Quoted(const Json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_structured()) {
    return absl::StrCat(value.is_array() ? "an array" : "an object", " of ",
                        value.size());
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > kLongest) {
      return absl::StrCat("'", text.substr(0, kLongest), "...'");
    }
    return absl::StrCat("'", text, "'");
  }
  return DumpJson(value);
}

}  // namespace everwarm::server
