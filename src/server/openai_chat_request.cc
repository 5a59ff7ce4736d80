#include "server/openai_chat_request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/json_fields.h"
#include "server/prompt_fields.h"

namespace everwarm::server {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTopLogprobs = 20;

absl::StatusOr<std::optional<uint32_t>> ReadMaxTokens(const Json& body) {
  std::optional<uint32_t> max_tokens;
  // The newer name comes last and wins.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    EW_ASSIGN_OR_RETURN(const std::optional<uint32_t> value,
                        ReadCount(body, name, {0, kMaxInt32}));
    if (value) {
      max_tokens = value;
    }
  }
  return max_tokens;
}

// An error unless the field is absent or one of the harmless values.
absl::Status RefuseUnless(const Json& body, const char* name,
                          const std::vector<Json>& harmless) {
  const Json* value = FindField(body, name);
  if (value == nullptr ||
      std::find(harmless.begin(), harmless.end(), *value) != harmless.end()) {
    return absl::OkStatus();
  }
  return InvalidRequest(absl::StrCat("'", name, "' is not supported"), name,
                        "unsupported");
}

absl::Status RefuseWhatWeLack(const Json& body) {
  for (const char* name :
       {"functions", "function_call", "audio", "web_search_options"}) {
    EW_RETURN_IF_ERROR(RefuseField(body, name));
  }
  return RefuseUnless(body, "modalities", {Json::array({"text"})});
}

absl::Status ReadLogprobs(const Json& body, GenerationOptions& options) {
  EW_ASSIGN_OR_RETURN(const bool wanted, BoolOr(body, "logprobs", false));
  EW_ASSIGN_OR_RETURN(const std::optional<uint32_t> top,
                      ReadCount(body, "top_logprobs", {0, kMaxTopLogprobs}));
  if (wanted) {
    options.top_logprobs = top.value_or(0);
  } else if (top.value_or(0) > 0) {
    return InvalidRequest("'top_logprobs' needs 'logprobs' to be true",
                          "top_logprobs");
  }
  return absl::OkStatus();
}

absl::Status ReadForm(const Json& body, models::ChatPrompt& prompt) {
  EW_ASSIGN_OR_RETURN(ReplyFields fields, ReadReplyFields(body));
  const bool calls =
      !prompt.tools.empty() && prompt.tool_choice != models::ToolChoice::kNone;
  if (!fields.grammar.empty() && calls) {
    return InvalidRequest("'grammar' cannot be combined with 'tools'",
                          "grammar");
  }
  prompt.json_schema = std::move(fields.json_schema);
  prompt.grammar = std::move(fields.grammar);
  return absl::OkStatus();
}

// "chat_template_kwargs" and "reasoning_effort": what templates ask about.
absl::Status ReadTemplateFields(const Json& body, models::ChatPrompt& prompt) {
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> effort,
                      OptionalString(body, "reasoning_effort"));
  if (effort) {
    SetEffort(*effort, prompt);
  }
  const Json* arguments = FindField(body, "chat_template_kwargs");
  if (arguments == nullptr) {
    return absl::OkStatus();
  }
  if (!arguments->is_object()) {
    return InvalidRequest("'chat_template_kwargs' must be an object",
                          "chat_template_kwargs");
  }
  for (const auto& [name, value] : arguments->items()) {
    // What the prompt itself is made of.
    for (const char* ours : {"messages", "tools", "add_generation_prompt",
                             "bos_token", "eos_token"}) {
      if (name == ours) {
        return InvalidRequest(absl::StrCat("'chat_template_kwargs' must not "
                                           "have '",
                                           name, "'"),
                              "chat_template_kwargs");
      }
    }
    prompt.template_arguments[name] = DumpJson(value);
  }
  EW_ASSIGN_OR_RETURN(prompt.thinking,
                      BoolOr(*arguments, "enable_thinking", prompt.thinking));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationOptions> ReadOpenAiOptions(const Json& body) {
  EW_ASSIGN_OR_RETURN(GenerationOptions options, ReadOptions(body));
  if (const Json* stream = FindField(body, "stream_options")) {
    if (!stream->is_object()) {
      return InvalidRequest("'stream_options' must be an object",
                            "stream_options");
    }
    EW_ASSIGN_OR_RETURN(options.include_usage,
                        BoolOr(*stream, "include_usage", false));
  }
  EW_ASSIGN_OR_RETURN(const std::optional<uint32_t> choices,
                      ReadCount(body, "n", {1, kMaxChoices}));
  options.choices = choices.value_or(1);
  EW_ASSIGN_OR_RETURN(options.max_tokens, ReadMaxTokens(body));
  EW_ASSIGN_OR_RETURN(options.stops, ReadStops(body, "stop"));
  EW_ASSIGN_OR_RETURN(options.ignore_eos, BoolOr(body, "ignore_eos", false));
  return options;
}

absl::StatusOr<ChatRequest> ParseChatRequest(const Json& body) {
  ChatRequest request;
  EW_ASSIGN_OR_RETURN(request.prompt.messages, ParseChatMessages(body));
  EW_RETURN_IF_ERROR(RefuseWhatWeLack(body));
  EW_ASSIGN_OR_RETURN(request.prompt.tools, ReadTools(body, {}));
  EW_RETURN_IF_ERROR(ReadToolChoice(body, true, request.prompt));
  EW_ASSIGN_OR_RETURN(request.prompt.parallel_tool_calls,
                      BoolOr(body, "parallel_tool_calls", true));
  EW_RETURN_IF_ERROR(ReadForm(body, request.prompt));
  EW_RETURN_IF_ERROR(ReadTemplateFields(body, request.prompt));
  EW_ASSIGN_OR_RETURN(request.options, ReadOpenAiOptions(body));
  EW_RETURN_IF_ERROR(ReadLogprobs(body, request.options));
  return request;
}

}  // namespace everwarm::server
