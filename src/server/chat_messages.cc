#include "server/chat_messages.h"

#include <string>
#include <utility>

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
  if (*type != "text") {
    return InvalidRequest(
        absl::StrCat("'", where, "' has the type ", Quoted(*type),
                     "; this server reads only text"),
        where, "unsupported");
  }
  const Json* text = FindField(part, "text");
  if (text == nullptr || !text->is_string()) {
    return InvalidRequest(absl::StrCat("'", where, ".text' must be a string"),
                          where);
  }
  return text->get<std::string>();
}

absl::StatusOr<std::string> ParseContent(const Json& message,
                                         const std::string& where) {
  const Json* content = FindField(message, "content");
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
                      ParseContent(value, absl::StrCat(where, ".content")));
  for (const char* name : {"tool_calls", "function_call", "audio"}) {
    if (!RefuseField(value, name).ok()) {
      const std::string field = absl::StrCat(where, ".", name);
      return InvalidRequest(absl::StrCat("'", field, "' is not supported"),
                            field, "unsupported");
    }
  }
  return message;
}

}  // namespace

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
  return messages;
}

}  // namespace everwarm::server
