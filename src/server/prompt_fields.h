// Tools, forms of a reply and the effort of thinking, as the APIs' bodies name
// them.
//
// Threads: pure, any.
// Errors:  kInvalidArgument with the field as its param (api_error.h).
#ifndef EVERWARM_SERVER_PROMPT_FIELDS_H_
#define EVERWARM_SERVER_PROMPT_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "models/json_schema.h"
#include "server/json_text.h"

namespace everwarm::server {

// Where a tool of an API says what it is.
struct ToolNames {
  // "function": {...} around name and parameters, or not.
  bool wrapped = true;
  // The schema of the arguments.
  const char* schema = "parameters";
  // The type is "function", or it may be missing.
  bool type_may_lack = false;
};

// The field "tools". Names are 1 to 128 letters, digits, '_' and '-', each
// once.
absl::StatusOr<std::vector<models::ChatTool>> ReadTools(const Json& body,
                                                        ToolNames names);

// The field "tool_choice" as OpenAI's APIs have it, into a prompt that has its
// tools: "auto", "none", "required", or {"type": "function"} with a name,
// inside "function" if `wrapped`.
absl::Status ReadToolChoice(const Json& body, bool wrapped,
                            models::ChatPrompt& prompt);
// The same for one tool by name.
absl::Status RequireTool(const std::string& name, models::ChatPrompt& prompt);

// Where an API's form of a reply lies.
struct FormNames {
  const char* field = "response_format";
  // The schema is in "json_schema", or beside the type.
  bool wrapped = true;
  // Schemas are strict; otherwise if "strict" beside them says so.
  bool always_strict = false;
};

// {"type": "text" | "json_object" | "json_schema", ...}. Returns the schema as
// text; empty: the reply is free.
absl::StatusOr<std::string> ReadReplyForm(const Json& form, FormNames names);

// The fields "response_format", "json_schema" and "grammar" of OpenAI's chat
// and completions, of which a body may have one.
struct ReplyFields {
  std::string json_schema;
  std::string grammar;
};
absl::StatusOr<ReplyFields> ReadReplyFields(const Json& body);

// How much to think, as templates know it; "none": not at all.
void SetEffort(const std::string& effort, models::ChatPrompt& prompt);

// A schema that is an object, small enough and followed as far as `use` asks
// for (models/json_schema.h); as text. `name` is the field it comes from.
absl::StatusOr<std::string> ReadSchema(const Json& schema,
                                       const std::string& name,
                                       models::SchemaUse use);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_PROMPT_FIELDS_H_
