#include "server/prompt_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/json_fields.h"

namespace everwarm::server {
namespace {

constexpr size_t kMaxTools = 256;
constexpr size_t kMaxNameLength = 128;
// A grammar is made of the schemas: its size and the time for it grow with
// theirs, for the properties of one object with their third power.
constexpr size_t kMaxSchemaBytes = size_t{256} << 10;
constexpr size_t kMaxAllSchemaBytes = size_t{1} << 20;
constexpr size_t kMaxProperties = 256;
constexpr size_t kMaxGrammarBytes = size_t{64} << 10;

constexpr char kAnyObject[] = R"({"type":"object"})";

bool IsToolName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '-';
         });
}

bool HasTooManyProperties(const Json& schema) {
  if (!schema.is_structured()) {
    return false;
  }
  if (schema.is_object()) {
    const auto properties = schema.find("properties");
    if (properties != schema.end() && properties->size() > kMaxProperties) {
      return true;
    }
  }
  return std::any_of(schema.begin(), schema.end(), HasTooManyProperties);
}

// Whether "strict" beside a schema asks for all of it.
absl::StatusOr<models::SchemaUse> ReadStrict(const Json& holder,
                                             const std::string& where) {
  const Json* strict = FindField(holder, "strict");
  if (strict != nullptr && !strict->is_boolean()) {
    return InvalidRequest(absl::StrCat("'", where,
                                       ".strict' must be true or false, and "
                                       "is ",
                                       Quoted(*strict)),
                          where);
  }
  return strict != nullptr && *strict == true ? models::SchemaUse::kStrict
                                              : models::SchemaUse::kBestEffort;
}

absl::StatusOr<models::ChatTool> ReadTool(const Json& value, ToolNames names,
                                          const std::string& where) {
  if (!value.is_object()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an object, and is ", Quoted(value)),
        where);
  }
  const Json* type = FindField(value, "type");
  // Tools of our own making have no type in Anthropic's API, or "custom".
  const bool known = names.type_may_lack
                         ? type == nullptr || *type == "custom"
                         : type != nullptr && *type == "function";
  if (!known) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be a tool of the client's; its type ",
                     type == nullptr ? "is missing" : "is " + Quoted(*type)),
        where, "unsupported");
  }
  const Json* function = &value;
  if (names.wrapped) {
    function = FindField(value, "function");
    if (function == nullptr || !function->is_object()) {
      return InvalidRequest(
          absl::StrCat("'", where, ".function' must be an object"), where);
    }
  }
  const Json* name = FindField(*function, "name");
  if (name == nullptr || !name->is_string() ||
      !IsToolName(name->get_ref<const std::string&>())) {
    return InvalidRequest(
        absl::StrCat("the name in '", where, "' must be 1 to ", kMaxNameLength,
                     " letters, digits, '_' or '-', and is ",
                     name == nullptr ? "missing" : Quoted(*name)),
        where);
  }
  models::ChatTool tool;
  tool.name = name->get<std::string>();
  if (const Json* text = FindField(*function, "description")) {
    if (!text->is_string()) {
      return InvalidRequest(
          absl::StrCat("the description in '", where, "' must be a string"),
          where);
    }
    tool.description = text->get<std::string>();
  }
  tool.parameters = R"({"type":"object","properties":{}})";
  const Json* schema = FindField(*function, names.schema);
  EW_ASSIGN_OR_RETURN(const models::SchemaUse use,
                      ReadStrict(*function, where));
  if (schema != nullptr && !(schema->is_object() && schema->empty())) {
    EW_ASSIGN_OR_RETURN(
        tool.parameters,
        ReadSchema(*schema,
                   absl::StrCat(where, names.wrapped ? ".function." : ".",
                                names.schema),
                   use));
  }
  return tool;
}

absl::StatusOr<std::string> ReadGrammar(const Json& body) {
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> grammar,
                      OptionalString(body, "grammar"));
  if (grammar && grammar->size() > kMaxGrammarBytes) {
    return InvalidRequest(
        absl::StrCat("'grammar' has ", grammar->size(), " bytes; at most ",
                     kMaxGrammarBytes, " can be followed"),
        "grammar");
  }
  return grammar.value_or("");
}

}  // namespace

absl::StatusOr<std::vector<models::ChatTool>> ReadTools(const Json& body,
                                                        ToolNames names) {
  std::vector<models::ChatTool> tools;
  const Json* list = FindField(body, "tools");
  if (list == nullptr) {
    return tools;
  }
  if (!list->is_array() || list->size() > kMaxTools) {
    return InvalidRequest(
        absl::StrCat("'tools' must be an array of at most ", kMaxTools,
                     " tools, and is ", Quoted(*list)),
        "tools");
  }
  absl::flat_hash_set<std::string> seen;
  size_t bytes = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = absl::StrCat("tools[", i, "]");
    EW_ASSIGN_OR_RETURN(models::ChatTool tool,
                        ReadTool((*list)[i], names, where));
    if (!seen.insert(tool.name).second) {
      return InvalidRequest(absl::StrCat("'", where, "' has the name '",
                                         tool.name, "' a second time"),
                            where);
    }
    bytes += tool.parameters.size();
    tools.push_back(std::move(tool));
  }
  if (bytes > kMaxAllSchemaBytes) {
    return InvalidRequest(
        absl::StrCat("the schemas of 'tools' have ", bytes, " bytes; at most ",
                     kMaxAllSchemaBytes, " can be followed"),
        "tools");
  }
  return tools;
}

absl::Status RequireTool(const std::string& name, models::ChatPrompt& prompt) {
  const bool known = std::any_of(
      prompt.tools.begin(), prompt.tools.end(),
      [&](const models::ChatTool& tool) { return tool.name == name; });
  if (!known) {
    return InvalidRequest(absl::StrCat("'tool_choice' names the tool '", name,
                                       "', and 'tools' has none of this name"),
                          "tool_choice");
  }
  prompt.tool_choice = models::ToolChoice::kRequired;
  prompt.required_tool = name;
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Json& body, bool wrapped,
                            models::ChatPrompt& prompt) {
  const Json* choice = FindField(body, "tool_choice");
  if (choice == nullptr || *choice == "auto") {
    return absl::OkStatus();
  }
  if (*choice == "none") {
    prompt.tool_choice = models::ToolChoice::kNone;
    return absl::OkStatus();
  }
  if (*choice == "required") {
    if (prompt.tools.empty()) {
      return InvalidRequest(
          "'tool_choice' is 'required', and there are no 'tools'",
          "tool_choice");
    }
    prompt.tool_choice = models::ToolChoice::kRequired;
    return absl::OkStatus();
  }
  if (choice->is_object()) {
    const Json* type = FindField(*choice, "type");
    const Json* function = wrapped ? FindField(*choice, "function") : choice;
    const Json* name = function != nullptr && function->is_object()
                           ? FindField(*function, "name")
                           : nullptr;
    if (type != nullptr && *type == "function" && name != nullptr &&
        name->is_string()) {
      return RequireTool(name->get<std::string>(), prompt);
    }
  }
  return InvalidRequest(
      absl::StrCat("'tool_choice' must be auto, none, required or a function "
                   "with its name, and is ",
                   Quoted(*choice)),
      "tool_choice");
}

void SetEffort(const std::string& effort, models::ChatPrompt& prompt) {
  prompt.template_arguments["reasoning_effort"] = DumpJson(effort);
  if (effort == "none") {
    prompt.thinking = false;
  }
}

absl::StatusOr<std::string> ReadSchema(const Json& schema,
                                       const std::string& name,
                                       models::SchemaUse use) {
  if (!schema.is_object()) {
    return InvalidRequest(
        absl::StrCat("'", name, "' must be a JSON schema, an object, and is ",
                     Quoted(schema)),
        name);
  }
  std::string text = DumpJson(schema);
  if (text.size() > kMaxSchemaBytes) {
    return InvalidRequest(
        absl::StrCat("'", name, "' has ", text.size(), " bytes; at most ",
                     kMaxSchemaBytes, " can be followed"),
        name);
  }
  if (HasTooManyProperties(schema)) {
    return InvalidRequest(
        absl::StrCat("'", name, "' has an object with more than ",
                     kMaxProperties, " properties"),
        name);
  }
  absl::StatusOr<std::string> followable = models::FollowableSchema(text, use);
  if (!followable.ok()) {
    return InvalidRequest(absl::StrCat("'", name, "' cannot be followed: ",
                                       followable.status().message()),
                          name, "invalid_json_schema");
  }
  return followable;
}

absl::StatusOr<std::string> ReadReplyForm(const Json& form, FormNames names) {
  const char* const name = names.field;
  const Json* type = form.is_object() ? FindField(form, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return InvalidRequest(
        absl::StrCat("'", name, "' must be an object with a type"), name);
  }
  if (*type == "text") {
    return std::string();
  }
  if (*type == "json_object") {
    return std::string(kAnyObject);
  }
  if (*type != "json_schema") {
    return InvalidRequest(
        absl::StrCat("'", name,
                     ".type' must be text, json_object or json_schema, and is ",
                     Quoted(*type)),
        name);
  }
  const Json* holder = names.wrapped ? FindField(form, "json_schema") : &form;
  if (holder == nullptr || !holder->is_object()) {
    return InvalidRequest(
        absl::StrCat("'", name, ".json_schema' must be an object"), name);
  }
  const std::string where =
      absl::StrCat(name, names.wrapped ? ".json_schema" : "");
  EW_ASSIGN_OR_RETURN(models::SchemaUse use, ReadStrict(*holder, where));
  if (names.always_strict) {
    use = models::SchemaUse::kStrict;
  }
  const Json* schema = FindField(*holder, "schema");
  if (schema == nullptr) {
    return std::string(kAnyObject);
  }
  return ReadSchema(*schema, absl::StrCat(where, ".schema"), use);
}

absl::StatusOr<ReplyFields> ReadReplyFields(const Json& body) {
  ReplyFields fields;
  if (const Json* form = FindField(body, "response_format")) {
    EW_ASSIGN_OR_RETURN(fields.json_schema, ReadReplyForm(*form, {}));
  }
  if (const Json* schema = FindField(body, "json_schema")) {
    if (!fields.json_schema.empty()) {
      return InvalidRequest(
          "'json_schema' cannot be combined with 'response_format'",
          "json_schema");
    }
    EW_ASSIGN_OR_RETURN(
        fields.json_schema,
        ReadSchema(*schema, "json_schema", models::SchemaUse::kBestEffort));
  }
  EW_ASSIGN_OR_RETURN(fields.grammar, ReadGrammar(body));
  if (!fields.grammar.empty() && !fields.json_schema.empty()) {
    return InvalidRequest("'grammar' cannot be combined with a JSON schema",
                          "grammar");
  }
  return fields;
}

}  // namespace everwarm::server
