// --kv: the name of a codec, or a file with bits for each layer.
#ifndef EVERWARM_CLI_KV_CONFIG_H_
#define EVERWARM_CLI_KV_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "models/kv_scheme.h"

namespace everwarm::cli {

// `text` is what KvScheme::Parse() takes, or a FILE.json:
//   {"default": {"bits": 8, "group_size": 64},
//    "layers": {"0": {"bits": 16}, "7": {"bits": 4}},
//    "first": {"tokens": 64, "bits": 16}}
// with 4, 8 or 16 (f16) bits and groups of 32 or 64.
// Errors: kInvalidArgument says what is wrong and where; kNotFound, the file.
absl::StatusOr<models::KvScheme> ReadKvScheme(const std::string& text);

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_KV_CONFIG_H_
