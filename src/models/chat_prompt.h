// A conversation as the chat template takes it, and a reply as it was meant.
#ifndef EVERWARM_MODELS_CHAT_PROMPT_H_
#define EVERWARM_MODELS_CHAT_PROMPT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace everwarm::models {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // What an assistant thought before its content.
  std::string reasoning = {};
  // What an assistant asked for.
  std::vector<ToolCall> tool_calls = {};
  // Whom a tool's message answers.
  std::string tool_name = {};
  std::string tool_call_id = {};
};

struct ChatTool {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON schema as text, of an object
};

enum class ToolChoice {
  kAuto,      // the model decides
  kRequired,  // at least one call
  kNone,      // no call; the tools are still described
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools = {};
  ToolChoice tool_choice = ToolChoice::kAuto;
  // With kRequired: the one tool that must be called; empty: any.
  std::string required_tool = {};
  bool parallel_tool_calls = true;
  // The reply must be JSON of this schema; empty: free.
  std::string json_schema = {};
  // The reply must follow this grammar (GBNF); empty: free.
  std::string grammar = {};
  // The reply goes on with the last message, an assistant's, in place of
  // beginning a new one.
  bool continue_last = false;
  // For templates that can leave the thinking out.
  bool thinking = true;
  // Further names that the template sees: JSON texts.
  std::map<std::string, std::string> template_arguments = {};
};

// What a reply's text means.
struct ParsedReply {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
};

// How to read the text of one reply.
//
// Threads: any.
class ReplySyntax {
 public:
  virtual ~ReplySyntax() = default;
  // `partial`: more text may follow. Nothing when the text does not fit.
  virtual std::optional<ParsedReply> Parse(const std::string& text,
                                           bool partial) const = 0;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_CHAT_PROMPT_H_
