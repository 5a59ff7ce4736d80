// JSON in and out with the guards that bytes from outside need.
#ifndef EVERWARM_SERVER_JSON_TEXT_H_
#define EVERWARM_SERVER_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace everwarm::server {

// Keeps the order of keys: that of a schema's properties is the order in which
// a reply has them.
using Json = nlohmann::ordered_json;

// Arrays and objects inside one another; deeper bodies are refused, because
// each level costs many times its byte in memory.
inline constexpr int kMaxJsonDepth = 100;
// Keys of one object; more are refused, because finding a key takes time for
// each of the others.
inline constexpr int kMaxJsonKeys = 2048;

// Errors: kInvalidArgument: not JSON (with the place), nested too deep, an
// object with too many keys, not an object, or not UTF-8.
absl::StatusOr<Json> ParseJsonObject(std::string_view body);

// One line. Bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& value);

// The value as a short quotation for a message.
std::string Quoted(const Json& value);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_JSON_TEXT_H_
