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

// {"type": "text" | "json_object" | "json_schema", ...}; the schema lies beside
// the type, or in "json_schema" if `wrapped`. Returns the schema as text;
// empty: the reply is free.
absl::StatusOr<std::string> ReadReplyForm(const Json& form, const char* name,
                                          bool wrapped);

// The fields "response_format", "json_schema" and "grammar" of OpenAI's chat
// and completions, of which a body may have one.
struct ReplyFields {
  std::string json_schema;
  std::string grammar;
};
absl::StatusOr<ReplyFields> ReadReplyFields(const Json& body);

// How much to think, as templates know it; "none": not at all.
void SetEffort(const std::string& effort, models::ChatPrompt& prompt);

// A schema that is an object and small enough to be followed.
absl::StatusOr<std::string> ReadSchema(const Json& schema,
                                       const std::string& name);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_PROMPT_FIELDS_H_
