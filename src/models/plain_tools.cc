#include "models/plain_tools.h"

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "chat-peg-parser.h"
#include "chat.h"
#include "json-schema-to-grammar.h"
#include "models/peg_reply_syntax.h"

namespace everwarm::models {
namespace {

constexpr char kCallBegin[] = "<tool_call>";
constexpr char kCallEnd[] = "</tool_call>";
constexpr char kResultBegin[] = "<tool_response>";
constexpr char kResultEnd[] = "</tool_response>";

absl::StatusOr<common_json> ParseJson(const std::string& text,
                                      const std::string& what) {
  try {
    return common_json::parse(text);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not JSON: ", error.what()));
  }
}

absl::StatusOr<common_json> ToolsJson(const std::vector<ChatTool>& tools) {
  common_json list = common_json::array();
  for (const ChatTool& tool : tools) {
    EW_ASSIGN_OR_RETURN(
        common_json parameters,
        ParseJson(tool.parameters,
                  absl::StrCat("the schema of tool '", tool.name, "'")));
    list.push_back({{"type", "function"},
                    {"function",
                     {{"name", tool.name},
                      {"description", tool.description},
                      {"parameters", parameters}}}});
  }
  return list;
}

absl::StatusOr<std::string> Description(const std::vector<ChatTool>& tools) {
  EW_ASSIGN_OR_RETURN(const common_json list, ToolsJson(tools));
  std::string text = absl::StrCat(
      "You can call these functions. To call one, write its name and its "
      "arguments as JSON between tags, and nothing after it:\n",
      kCallBegin, "{\"name\": \"NAME\", \"arguments\": {ARGUMENTS}}", kCallEnd,
      "\nThe result comes back between ", kResultBegin, " and ", kResultEnd,
      ".\n\nFunctions:");
  for (const auto& tool : list) {
    absl::StrAppend(&text, "\n", tool.at("function").dump());
  }
  return text;
}

absl::StatusOr<std::string> CallText(const ToolCall& call) {
  EW_ASSIGN_OR_RETURN(
      const common_json arguments,
      ParseJson(call.arguments.empty() ? "{}" : call.arguments,
                absl::StrCat("what tool '", call.name, "' was called with")));
  const common_json json = {{"name", call.name}, {"arguments", arguments}};
  return absl::StrCat(kCallBegin, json.dump(), kCallEnd);
}

absl::Status AddMessage(const ChatMessage& message,
                        std::vector<ChatMessage>& into) {
  if (message.role == "tool") {
    const std::string text =
        absl::StrCat(kResultBegin, "\n", message.content, "\n", kResultEnd);
    const bool goes_on = !into.empty() && into.back().role == "user" &&
                         !into.back().tool_call_id.empty();
    if (goes_on) {
      absl::StrAppend(&into.back().content, "\n", text);
    } else {
      into.push_back({.role = "user", .content = text});
      // Only to know it again; the template of such a model reads no id.
      into.back().tool_call_id = "result";
    }
    return absl::OkStatus();
  }
  ChatMessage plain = message;
  plain.tool_calls.clear();
  for (const ToolCall& call : message.tool_calls) {
    EW_ASSIGN_OR_RETURN(const std::string text, CallText(call));
    absl::StrAppend(&plain.content, plain.content.empty() ? "" : "\n", text);
  }
  into.push_back(std::move(plain));
  return absl::OkStatus();
}

common_peg_parser ThoughtParser(common_chat_peg_builder& builder,
                                const ThinkingTags& thinking) {
  if (thinking.end.empty()) {
    return builder.eps();
  }
  const auto thought = builder.reasoning(builder.until(thinking.end)) +
                       builder.literal(thinking.end) + builder.space();
  return thinking.open
             ? thought
             : builder.optional(builder.literal(thinking.begin) + thought);
}

// Calls only, or a free text that may end in calls.
common_peg_parser ReplyParser(common_chat_peg_builder& builder,
                              const ChatPrompt& prompt,
                              const ThinkingTags& thinking,
                              const common_json& tools) {
  const auto call = builder.standard_json_tools(kCallBegin, kCallEnd, tools,
                                                /*parallel_tool_calls=*/false,
                                                /*force_tool_calls=*/true);
  const auto calls = builder.trigger_rule(
      "tool-calls", prompt.parallel_tool_calls
                        ? call + builder.zero_or_more(builder.space() + call)
                        : call);
  if (prompt.tool_choice == ToolChoice::kRequired) {
    return ThoughtParser(builder, thinking) + calls + builder.space() +
           builder.end();
  }
  return ThoughtParser(builder, thinking) +
         builder.content(builder.until(kCallBegin)) +
         builder.optional(calls + builder.space()) + builder.end();
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> DescribePlainTools(
    const ChatPrompt& prompt) {
  std::vector<ChatMessage> messages;
  size_t first = 0;
  if (!prompt.tools.empty()) {
    EW_ASSIGN_OR_RETURN(std::string text, Description(prompt.tools));
    if (!prompt.messages.empty() && prompt.messages[0].role == "system") {
      text = absl::StrCat(prompt.messages[0].content, "\n\n", text);
      first = 1;
    }
    messages.push_back({.role = "system", .content = std::move(text)});
  }
  for (size_t i = first; i < prompt.messages.size(); ++i) {
    EW_RETURN_IF_ERROR(AddMessage(prompt.messages[i], messages));
  }
  for (ChatMessage& message : messages) {
    message.tool_call_id.clear();
  }
  return messages;
}

absl::StatusOr<PlainToolReply> PlainToolReplyOf(const ChatPrompt& prompt,
                                                const ThinkingTags& thinking) {
  std::vector<ChatTool> callable;
  for (const ChatTool& tool : prompt.tools) {
    if (prompt.required_tool.empty() || tool.name == prompt.required_tool) {
      callable.push_back(tool);
    }
  }
  EW_ASSIGN_OR_RETURN(const common_json tools, ToolsJson(callable));
  try {
    common_peg_arena arena =
        build_chat_peg_parser([&](common_chat_peg_builder& builder) {
          return ReplyParser(builder, prompt, thinking, tools);
        });
    PlainToolReply reply;
    reply.grammar.lazy = prompt.tool_choice != ToolChoice::kRequired;
    reply.grammar.text =
        build_grammar([&](const common_grammar_builder& builder) {
          arena.build_grammar(builder, reply.grammar.lazy);
        });
    if (reply.grammar.lazy) {
      reply.grammar.trigger_words = {kCallBegin};
    }
    common_chat_parser_params params;
    params.format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    params.parser = std::move(arena);
    reply.syntax = MakePegReplySyntax(std::move(params));
    return reply;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tools cannot be followed: ", error.what()));
  }
}

}  // namespace everwarm::models
