#include "server/anthropic_request.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/json_fields.h"
#include "server/prompt_fields.h"

namespace everwarm::server {
namespace {

using models::ChatMessage;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// A string, or an array of blocks, each an object with a type.
absl::Status CheckBlocks(const Json& content, const std::string& where) {
  if (!content.is_array()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be a string or an array of blocks, ",
                     "and is ", Quoted(content)),
        where);
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const Json* type =
        content[i].is_object() ? FindField(content[i], "type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      const std::string place = absl::StrCat(where, "[", i, "]");
      return InvalidRequest(
          absl::StrCat("'", place, "' must be an object with a type"), place);
    }
  }
  return absl::OkStatus();
}

absl::Status Unsupported(const Json& block, const std::string& where) {
  return InvalidRequest(
      absl::StrCat("'", where, "' has the type ", Quoted(block["type"]),
                   "; this server reads only text and tools"),
      where, "unsupported");
}

void AppendText(const std::string& text, std::string& into) {
  absl::StrAppend(&into, into.empty() ? "" : "\n", text);
}

// What holds only text: the system's prompt, a tool's result.
absl::StatusOr<std::string> ReadTextBlocks(const Json* content,
                                           const std::string& where) {
  std::string text;
  if (content == nullptr) {
    return text;
  }
  if (content->is_string()) {
    return content->get<std::string>();
  }
  EW_RETURN_IF_ERROR(CheckBlocks(*content, where));
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& block = (*content)[i];
    const std::string place = absl::StrCat(where, "[", i, "]");
    if (block["type"] != "text") {
      return Unsupported(block, place);
    }
    EW_ASSIGN_OR_RETURN(const std::string part,
                        RequiredStringIn(block, "text", place));
    AppendText(part, text);
  }
  return text;
}

absl::Status AddUserBlock(const Json& block, const std::string& where,
                          std::string& text,
                          std::vector<ChatMessage>& messages) {
  if (block["type"] == "text") {
    EW_ASSIGN_OR_RETURN(const std::string part,
                        RequiredStringIn(block, "text", where));
    AppendText(part, text);
    return absl::OkStatus();
  }
  if (block["type"] != "tool_result") {
    return Unsupported(block, where);
  }
  ChatMessage result;
  result.role = "tool";
  EW_ASSIGN_OR_RETURN(result.tool_call_id,
                      RequiredStringIn(block, "tool_use_id", where));
  EW_ASSIGN_OR_RETURN(result.content,
                      ReadTextBlocks(FindField(block, "content"),
                                     absl::StrCat(where, ".content")));
  messages.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status AddAssistantBlock(const Json& block, const std::string& where,
                               ChatMessage& message) {
  const auto& type = block["type"].get_ref<const std::string&>();
  if (type == "text") {
    EW_ASSIGN_OR_RETURN(const std::string part,
                        RequiredStringIn(block, "text", where));
    AppendText(part, message.content);
  } else if (type == "thinking") {
    EW_ASSIGN_OR_RETURN(const std::string part,
                        RequiredStringIn(block, "thinking", where));
    AppendText(part, message.reasoning);
  } else if (type == "tool_use") {
    models::ToolCall call;
    EW_ASSIGN_OR_RETURN(call.id, RequiredStringIn(block, "id", where));
    EW_ASSIGN_OR_RETURN(call.name, RequiredStringIn(block, "name", where));
    const Json* input = FindField(block, "input");
    call.arguments = input == nullptr ? "{}" : DumpJson(*input);
    EW_RETURN_IF_ERROR(CheckToolCall(call, where));
    message.tool_calls.push_back(std::move(call));
  } else if (type != "redacted_thinking") {
    return Unsupported(block, where);
  }
  return absl::OkStatus();
}

// Results of tools come before what the user says with them.
absl::Status AddMessage(const Json& value, const std::string& where,
                        std::vector<ChatMessage>& messages) {
  if (!value.is_object()) {
    return InvalidRequest(
        absl::StrCat("'", where, "' must be an object, and is ", Quoted(value)),
        where);
  }
  const Json* role = FindField(value, "role");
  if (role == nullptr ||
      (*role != "user" && *role != "assistant" && *role != "system")) {
    const std::string field = absl::StrCat(where, ".role");
    return InvalidRequest(
        absl::StrCat("'", field, "' must be user, assistant or system, and is ",
                     role == nullptr ? "missing" : Quoted(*role)),
        field);
  }
  const bool assistant = *role == "assistant";
  ChatMessage message;
  message.role = role->get<std::string>();
  const size_t before = messages.size();
  const Json* content = FindField(value, "content");
  const std::string place = absl::StrCat(where, ".content");
  if (content != nullptr && content->is_string()) {
    message.content = content->get<std::string>();
  } else if (content != nullptr) {
    EW_RETURN_IF_ERROR(CheckBlocks(*content, place));
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string block = absl::StrCat(place, "[", i, "]");
      EW_RETURN_IF_ERROR(
          assistant
              ? AddAssistantBlock((*content)[i], block, message)
              : AddUserBlock((*content)[i], block, message.content, messages));
    }
  }
  // A message of results alone says nothing more.
  if (messages.size() == before || !message.content.empty()) {
    messages.push_back(std::move(message));
  }
  return absl::OkStatus();
}

absl::Status ReadMessages(const Json& body, models::ChatPrompt& prompt) {
  EW_ASSIGN_OR_RETURN(std::string system,
                      ReadTextBlocks(FindField(body, "system"), "system"));
  if (!system.empty()) {
    prompt.messages.push_back({"system", std::move(system)});
  }
  const Json* list = FindField(body, "messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return InvalidRequest(
        absl::StrCat("'messages' must be an array with at least one message, ",
                     "and is ", list == nullptr ? "missing" : Quoted(*list)),
        "messages");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    EW_RETURN_IF_ERROR(AddMessage((*list)[i], absl::StrCat("messages[", i, "]"),
                                  prompt.messages));
  }
  NameToolResults(prompt.messages);
  const ChatMessage& last = prompt.messages.back();
  const bool begun = last.role == "assistant";
  if (begun && last.content.empty() && last.tool_calls.empty() &&
      prompt.messages.size() > 1) {
    prompt.messages.pop_back();  // nothing to go on with: a new reply
  } else if (begun) {
    if (!last.tool_calls.empty()) {
      return InvalidRequest(
          "the last of 'messages' has calls of tools and no results of them",
          "messages");
    }
    prompt.continue_last = true;
  }
  return absl::OkStatus();
}

absl::Status ReadChoice(const Json& body, models::ChatPrompt& prompt) {
  const Json* choice = FindField(body, "tool_choice");
  if (choice == nullptr) {
    return absl::OkStatus();
  }
  const Json* type = choice->is_object() ? FindField(*choice, "type") : nullptr;
  if (type == nullptr) {
    return InvalidRequest("'tool_choice' must be an object with a type",
                          "tool_choice");
  }
  EW_ASSIGN_OR_RETURN(const bool one_at_most,
                      BoolOr(*choice, "disable_parallel_tool_use", false));
  prompt.parallel_tool_calls = !one_at_most;
  if (*type == "auto") {
    return absl::OkStatus();
  }
  if (*type == "none") {
    prompt.tool_choice = models::ToolChoice::kNone;
    return absl::OkStatus();
  }
  if (*type == "tool") {
    EW_ASSIGN_OR_RETURN(const std::string name,
                        RequiredStringIn(*choice, "name", "tool_choice"));
    return RequireTool(name, prompt);
  }
  if (*type != "any" || prompt.tools.empty()) {
    return InvalidRequest(
        absl::StrCat("'tool_choice' must be auto, none, or, with 'tools', any "
                     "or tool, and is ",
                     Quoted(*type)),
        "tool_choice");
  }
  prompt.tool_choice = models::ToolChoice::kRequired;
  return absl::OkStatus();
}

// Off unless asked for, as in the API.
absl::Status ReadThinking(const Json& body, models::ChatPrompt& prompt) {
  prompt.thinking = false;
  const Json* thinking = FindField(body, "thinking");
  if (thinking == nullptr) {
    return absl::OkStatus();
  }
  const Json* type =
      thinking->is_object() ? FindField(*thinking, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return InvalidRequest("'thinking' must be an object with a type",
                          "thinking");
  }
  prompt.thinking = *type != "disabled";
  return absl::OkStatus();
}

// "output_config" with the reply's form and the effort of thinking.
absl::Status ReadOutput(const Json& body, models::ChatPrompt& prompt) {
  const Json* config = FindField(body, "output_config");
  if (config == nullptr) {
    return absl::OkStatus();
  }
  if (!config->is_object()) {
    return InvalidRequest("'output_config' must be an object", "output_config");
  }
  if (const Json* format = FindField(*config, "format")) {
    EW_ASSIGN_OR_RETURN(prompt.json_schema,
                        ReadReplyForm(*format, {.field = "output_config.format",
                                                .wrapped = false,
                                                .always_strict = true}));
  }
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> effort,
                      OptionalString(*config, "effort"));
  if (effort) {
    SetEffort(*effort, prompt);
  }
  return absl::OkStatus();
}

bool MarksCache(const Json& value) {
  if (!value.is_structured()) {
    return false;
  }
  if (value.is_object() && FindField(value, "cache_control") != nullptr) {
    return true;
  }
  for (const Json& inner : value) {
    if (MarksCache(inner)) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<MessagesRequest> ParseMessagesRequest(const Json& body,
                                                     bool only_count) {
  MessagesRequest request;
  EW_RETURN_IF_ERROR(ReadMessages(body, request.prompt));
  EW_ASSIGN_OR_RETURN(request.prompt.tools,
                      ReadTools(body, {.wrapped = false,
                                       .schema = "input_schema",
                                       .type_may_lack = true}));
  EW_RETURN_IF_ERROR(ReadChoice(body, request.prompt));
  EW_RETURN_IF_ERROR(ReadThinking(body, request.prompt));
  EW_RETURN_IF_ERROR(ReadOutput(body, request.prompt));
  EW_ASSIGN_OR_RETURN(request.options, ReadOptions(body));
  EW_ASSIGN_OR_RETURN(request.options.stops, ReadStops(body, "stop_sequences"));
  EW_ASSIGN_OR_RETURN(request.options.max_tokens,
                      ReadCount(body, "max_tokens", {1, kMaxInt32}));
  if (!request.options.max_tokens && !only_count) {
    return InvalidRequest("'max_tokens' is missing", "max_tokens");
  }
  request.marks_cache = MarksCache(body);
  return request;
}

}  // namespace everwarm::server
