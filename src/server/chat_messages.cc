#include "server/chat_messages.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/json_fields.h"

namespace everwarm::server {
namespace {

absl::StatusOr<std::string> ParsePart(const Json& part,
                                      const std::string& where) {
  if (!part.is_object()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an object with a type"), where);
  }
  const Json* type = FindField(part, "type");
  if (type == nullptr || !type->is_string()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must have a string as its type"), where);
  }
  // What an assistant said in place of an answer is its text too.
  const char* field = *type == "refusal" ? "refusal" : "text";
  if (*type != field && *type != "input_text" && *type != "output_text") {
    return InvalidRequest(
        absl::StrCat("'", where, "' has the type ", Quoted(*type),
                     "; this server reads only text"),
        where, "unsupported");
  }
  const Json* text = FindField(part, field);
  if (text == nullptr || !text->is_string()) {
    return InvalidRequest(
        absl::StrCat("'", where, ".", field, "' must be a string"), where);
  }
  return text->get<std::string>();
}

}  // namespace

absl::StatusOr<std::string> ParseTextContent(const Json* content,
                                             const std::string& where) {
  if (content == nullptr) {
    return std::string();
  }
  if (content->is_string()) {
    return content->get<std::string>();
  }
  if (!content->is_array()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be a string, null, or an array of ",
                     "parts, and is ", Quoted(*content)),
        where);
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    EW_ASSIGN_OR_RETURN(
        const std::string part,
        ParsePart((*content)[i], absl::StrCat(where, "[", i, "]")));
    absl::StrAppend(&text, i == 0 ? "" : "\n", part);
  }
  return text;
}

namespace {

absl::StatusOr<std::string> ParseRole(const Json& message,
                                      const std::string& where) {
  const Json* role = FindField(message, "role");
  if (role == nullptr) {
    return InvalidRequest(absl::StrCat("'", where, "' is missing"), where);
  }
  if (role->is_string()) {
    const auto& name = role->get_ref<const std::string&>();
    // What newer models call the system's message.
    if (name == "developer") {
      return std::string("system");
    }
    if (name == "system" || name == "user" || name == "assistant" ||
        name == "tool") {
      return name;
    }
  }
  return InvalidRequest(
      absl::StrCat("'", where, "' must be system, developer, user, assistant ",
                   "or tool, and is ", Quoted(*role)),
      where);
}

absl::StatusOr<models::ToolCall> ParseToolCall(const Json& value,
                                               const std::string& where) {
  const Json* function =
      value.is_object() ? FindField(value, "function") : nullptr;
  if (function == nullptr || !function->is_object()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an object with a function"), where);
  }
  models::ToolCall call;
  EW_ASSIGN_OR_RETURN(call.id, StringIn(value, "id", where));
  EW_ASSIGN_OR_RETURN(call.name, StringIn(*function, "name", where));
  EW_ASSIGN_OR_RETURN(call.arguments, StringIn(*function, "arguments", where));
  EW_RETURN_IF_ERROR(CheckToolCall(call, where));
  return call;
}

absl::StatusOr<std::vector<models::ToolCall>> ParseToolCalls(
    const Json* list, const std::string& where) {
  std::vector<models::ToolCall> calls;
  if (list == nullptr) {
    return calls;
  }
  if (!list->is_array()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an array, and is ", Quoted(*list)),
        where);
  }
  for (size_t i = 0; i < list->size(); ++i) {
    EW_ASSIGN_OR_RETURN(
        models::ToolCall call,
        ParseToolCall((*list)[i], absl::StrCat(where, "[", i, "]")));
    calls.push_back(std::move(call));
  }
  return calls;
}

absl::StatusOr<models::ChatMessage> ParseMessage(const Json& value,
                                                 const std::string& where) {
  if (!value.is_object()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an object, and is ", Quoted(value)),
        where);
  }
  models::ChatMessage message;
  EW_ASSIGN_OR_RETURN(message.role,
                      ParseRole(value, absl::StrCat(where, ".role")));
  EW_ASSIGN_OR_RETURN(message.content,
                      ParseTextContent(FindField(value, "content"),
                                       absl::StrCat(where, ".content")));
  if (message.content.empty()) {
    EW_ASSIGN_OR_RETURN(message.content, StringIn(value, "refusal", where));
  }
  EW_ASSIGN_OR_RETURN(message.reasoning,
                      StringIn(value, "reasoning_content", where));
  EW_ASSIGN_OR_RETURN(message.tool_call_id,
                      StringIn(value, "tool_call_id", where));
  for (const char* name : {"function_call", "audio"}) {
    if (!RefuseField(value, name).ok()) {
      const std::string field = absl::StrCat(where, ".", name);
      return InvalidRequest(absl::StrCat("'", field, "' is not supported"),
                            field, "unsupported");
    }
  }
  if (message.role == "tool") {
    EW_ASSIGN_OR_RETURN(message.tool_name, StringIn(value, "name", where));
  }
  if (message.role == "assistant") {
    EW_ASSIGN_OR_RETURN(message.tool_calls,
                        ParseToolCalls(FindField(value, "tool_calls"),
                                       absl::StrCat(where, ".tool_calls")));
  }
  return message;
}

}  // namespace

absl::Status CheckToolCall(const models::ToolCall& call,
                           const std::string& where) {
  if (call.name.empty()) {
    return InvalidRequest(
        absl::StrCat("the function in '", where, "' has no name"), where);
  }
  if (!call.arguments.empty() && !ParseJsonObject(call.arguments).ok()) {
    return InvalidRequest(
        absl::StrCat("the arguments in '", where,
                     "' must be a JSON object as a string, and are ",
                     Quoted(Json(call.arguments))),
        where);
  }
  return absl::OkStatus();
}

void NameToolResults(std::vector<models::ChatMessage>& messages) {
  absl::flat_hash_map<std::string, std::string> names;
  for (models::ChatMessage& message : messages) {
    for (const models::ToolCall& call : message.tool_calls) {
      if (!call.id.empty()) {
        names[call.id] = call.name;
      }
    }
    if (message.role == "tool" && message.tool_name.empty()) {
      const auto found = names.find(message.tool_call_id);
      if (found != names.end()) {
        message.tool_name = found->second;
      }
    }
  }
}

absl::StatusOr<std::vector<models::ChatMessage>> ParseChatMessages(
    const Json& body) {
  const Json* list = FindField(body, "messages");
  if (list == nullptr) {
    return InvalidRequest("'messages' is missing", "messages");
  }
  if (!list->is_array()) {
    return InvalidRequest(
        absl::StrCat("'messages' must be an array, and is ", Quoted(*list)),
        "messages");
  }
  if (list->empty()) {
    return InvalidRequest("'messages' is empty", "messages");
  }
  std::vector<models::ChatMessage> messages;
  messages.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    EW_ASSIGN_OR_RETURN(
        models::ChatMessage message,
        ParseMessage((*list)[i], absl::StrCat("messages[", i, "]")));
    messages.push_back(std::move(message));
  }
  NameToolResults(messages);
  return messages;
}

}  // namespace everwarm::server
