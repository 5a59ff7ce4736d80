#include "server/responses_request.h"

#include <limits>
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

// Items of an input become messages; what an assistant thought and called
// belongs to one of them.
class InputReader {
 public:
  absl::Status Add(const Json& item, const std::string& where) {
    if (!item.is_object()) {
      return InvalidRequest(
          absl::StrCat("'", where, "' must be an object, and is ",
                       Quoted(item)),
          where);
    }
    const Json* type = FindField(item, "type");
    if (type == nullptr || *type == "message") {
      return AddMessage(item, where);
    }
    if (*type == "function_call") {
      return AddCall(item, where);
    }
    if (*type == "function_call_output") {
      return AddResult(item, where);
    }
    if (*type == "reasoning") {
      return AddReasoning(item, where);
    }
    return InvalidRequest(
        absl::StrCat("'", where, "' has the type ", Quoted(*type),
                     "; this server reads messages, calls "
                     "of functions and their outputs"),
        where, "unsupported");
  }

  std::vector<ChatMessage> Take() { return std::move(messages_); }

 private:
  absl::Status AddMessage(const Json& item, const std::string& where) {
    const Json* role = FindField(item, "role");
    ChatMessage message;
    if (role != nullptr && (*role == "system" || *role == "developer")) {
      message.role = "system";
    } else if (role != nullptr && (*role == "user" || *role == "assistant")) {
      message.role = role->get<std::string>();
    } else {
      const std::string field = absl::StrCat(where, ".role");
      return InvalidRequest(
          absl::StrCat("'", field, "' must be system, developer, user or ",
                       "assistant, and is ",
                       role == nullptr ? "missing" : Quoted(*role)),
          field);
    }
    EW_ASSIGN_OR_RETURN(message.content,
                        ParseTextContent(FindField(item, "content"),
                                         absl::StrCat(where, ".content")));
    if (message.role == "assistant") {
      message.reasoning = std::exchange(reasoning_, {});
    }
    messages_.push_back(std::move(message));
    return absl::OkStatus();
  }

  absl::Status AddCall(const Json& item, const std::string& where) {
    models::ToolCall call;
    EW_ASSIGN_OR_RETURN(call.id, RequiredStringIn(item, "call_id", where));
    EW_ASSIGN_OR_RETURN(call.name, RequiredStringIn(item, "name", where));
    EW_ASSIGN_OR_RETURN(call.arguments,
                        RequiredStringIn(item, "arguments", where));
    EW_RETURN_IF_ERROR(CheckToolCall(call, where));
    if (messages_.empty() || messages_.back().role != "assistant") {
      messages_.push_back({"assistant", ""});
      messages_.back().reasoning = std::exchange(reasoning_, {});
    }
    messages_.back().tool_calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  absl::Status AddResult(const Json& item, const std::string& where) {
    ChatMessage message;
    message.role = "tool";
    EW_ASSIGN_OR_RETURN(message.tool_call_id,
                        RequiredStringIn(item, "call_id", where));
    EW_ASSIGN_OR_RETURN(message.content,
                        ParseTextContent(FindField(item, "output"),
                                         absl::StrCat(where, ".output")));
    messages_.push_back(std::move(message));
    return absl::OkStatus();
  }

  absl::Status AddReasoning(const Json& item, const std::string& where) {
    const Json* content = FindField(item, "content");
    if (content == nullptr) {
      return absl::OkStatus();
    }
    const std::string place = absl::StrCat(where, ".content");
    if (!content->is_array()) {
      return InvalidRequest(absl::StrCat("'", place, "' must be an array"),
                            place);
    }
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string part = absl::StrCat(place, "[", i, "]");
      if (!(*content)[i].is_object()) {
        return InvalidRequest(absl::StrCat("'", part, "' must be an object"),
                              part);
      }
      EW_ASSIGN_OR_RETURN(const std::string text,
                          RequiredStringIn((*content)[i], "text", part));
      reasoning_ += text;
    }
    return absl::OkStatus();
  }

  std::vector<ChatMessage> messages_;
  std::string reasoning_;
};

absl::StatusOr<std::vector<ChatMessage>> ReadInput(const Json& body) {
  const Json* input = FindField(body, "input");
  if (input != nullptr && input->is_string()) {
    return std::vector<ChatMessage>{{"user", input->get<std::string>()}};
  }
  if (input == nullptr || !input->is_array() || input->empty()) {
    return InvalidRequest(
        absl::StrCat("'input' must be a string or an array with at least one "
                     "item, and is ",
                     input == nullptr ? "missing" : Quoted(*input)),
        "input");
  }
  InputReader reader;
  for (size_t i = 0; i < input->size(); ++i) {
    EW_RETURN_IF_ERROR(reader.Add((*input)[i], absl::StrCat("input[", i, "]")));
  }
  return reader.Take();
}

absl::Status ReadForm(const Json& body, models::ChatPrompt& prompt) {
  const Json* text = FindField(body, "text");
  if (text == nullptr) {
    return absl::OkStatus();
  }
  if (!text->is_object()) {
    return InvalidRequest("'text' must be an object", "text");
  }
  if (const Json* format = FindField(*text, "format")) {
    EW_ASSIGN_OR_RETURN(
        prompt.json_schema,
        ReadReplyForm(*format, {.field = "text.format", .wrapped = false}));
  }
  return absl::OkStatus();
}

absl::Status ReadReasoning(const Json& body, models::ChatPrompt& prompt) {
  const Json* reasoning = FindField(body, "reasoning");
  if (reasoning == nullptr) {
    return absl::OkStatus();
  }
  if (!reasoning->is_object()) {
    return InvalidRequest("'reasoning' must be an object", "reasoning");
  }
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> effort,
                      OptionalString(*reasoning, "effort"));
  if (effort) {
    SetEffort(*effort, prompt);
  }
  return absl::OkStatus();
}

Json EchoOf(const Json& body) {
  // With what they are when the request does not say.
  Json echo = {{"instructions", nullptr},
               {"max_output_tokens", nullptr},
               {"metadata", Json::object()},
               {"parallel_tool_calls", true},
               {"previous_response_id", nullptr},
               {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
               {"store", true},
               {"temperature", nullptr},
               {"text", {{"format", Json::object({{"type", "text"}})}}},
               {"tool_choice", "auto"},
               {"tools", Json::array()},
               {"top_p", nullptr},
               {"truncation", "disabled"},
               {"user", nullptr}};
  for (auto& [name, value] : echo.items()) {
    if (const Json* given = FindField(body, name.c_str())) {
      value = *given;
    }
  }
  return echo;
}

}  // namespace

absl::StatusOr<ResponsesRequest> ParseResponsesRequest(const Json& body) {
  ResponsesRequest request;
  EW_ASSIGN_OR_RETURN(request.prompt.messages, ReadInput(body));
  for (const char* name :
       {"background", "conversation", "prompt", "top_logprobs"}) {
    EW_RETURN_IF_ERROR(RefuseField(body, name));
  }
  EW_ASSIGN_OR_RETURN(request.prompt.tools,
                      ReadTools(body, {.wrapped = false}));
  EW_RETURN_IF_ERROR(ReadToolChoice(body, false, request.prompt));
  EW_ASSIGN_OR_RETURN(request.prompt.parallel_tool_calls,
                      BoolOr(body, "parallel_tool_calls", true));
  EW_RETURN_IF_ERROR(ReadForm(body, request.prompt));
  EW_RETURN_IF_ERROR(ReadReasoning(body, request.prompt));
  EW_ASSIGN_OR_RETURN(request.options, ReadOptions(body));
  EW_ASSIGN_OR_RETURN(request.options.max_tokens,
                      ReadCount(body, "max_output_tokens", {0, kMaxInt32}));
  EW_ASSIGN_OR_RETURN(request.store, BoolOr(body, "store", true));
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> instructions,
                      OptionalString(body, "instructions"));
  request.instructions = instructions.value_or("");
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> previous,
                      OptionalString(body, "previous_response_id"));
  request.previous_response_id = previous.value_or("");
  request.echo = EchoOf(body);
  return request;
}

}  // namespace everwarm::server
