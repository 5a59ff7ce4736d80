#include "server/json_text.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

// What would cost far more than its bytes. Looks at brackets and colons outside
// strings; whether they match is the parser's business.
absl::Status CheckShape(std::string_view body) {
  // Colons so far in each open bracket.
  std::vector<int> keys;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      keys.push_back(0);
      if (keys.size() > size_t{kMaxJsonDepth}) {
        return InvalidRequest(absl::StrCat("the body nests more than ",
                                           kMaxJsonDepth, " levels of JSON"));
      }
    } else if ((c == ']' || c == '}') && !keys.empty()) {
      keys.pop_back();
    } else if (c == ':' && !keys.empty() && ++keys.back() > kMaxJsonKeys) {
      return InvalidRequest(absl::StrCat(
          "the body has an object with more than ", kMaxJsonKeys, " keys"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view body) {
  EW_RETURN_IF_ERROR(CheckShape(body));
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
