// JSON schemas that a reply is held to.
//
// llama.cpp's converter makes grammars of them. It passes over much of what it
// does not know, and writes to stderr about some; here a schema is read before
// it gets there.
//
// Pure.
#ifndef EVERWARM_MODELS_JSON_SCHEMA_H_
#define EVERWARM_MODELS_JSON_SCHEMA_H_

#include <string>

#include "absl/status/statusor.h"

namespace everwarm::models {

enum class SchemaUse {
  // The reply fits the schema, or there is none.
  kStrict,
  // What a grammar cannot express is left to the model.
  kBestEffort,
};

// The schema in words that the converter follows as they are meant; the same
// text where it does so already. An "allOf" of one schema becomes that schema,
// a reference to "#" one to a definition, and, in a strict schema, a format
// with a regular expression that expression.
// Errors: kInvalidArgument with the place and the reason: no schema, one that
// nothing fits, or, if it is strict, one that cannot be held to in full.
absl::StatusOr<std::string> FollowableSchema(const std::string& schema,
                                             SchemaUse use);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_JSON_SCHEMA_H_
