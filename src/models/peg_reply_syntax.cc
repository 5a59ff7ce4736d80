#include "models/peg_reply_syntax.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "models/deep_stack.h"
#include "models/quiet_log.h"
#include "models/vocabulary.h"

namespace everwarm::models {
namespace {

// The parser recurses for each array and object in the arguments of a call.
constexpr size_t kShallow = 64;
constexpr size_t kStackPerLevel = size_t{16} << 10;

size_t PossibleDepth(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }));
}

class PegReplySyntax final : public ReplySyntax {
 public:
  explicit PegReplySyntax(common_chat_parser_params params)
      : params_(std::move(params)) {}

  std::optional<ParsedReply> Parse(const std::string& text,
                                   bool partial) const override {
    std::optional<common_chat_msg> message = TryParse(text, partial);
    if (!message && !partial) {
      // Cut off in the middle of a call.
      message = TryParse(text, true);
    }
    if (!message) {
      return std::nullopt;
    }
    ParsedReply reply;
    reply.content = std::move(message->content);
    reply.reasoning = std::move(message->reasoning_content);
    for (common_chat_tool_call& call : message->tool_calls) {
      reply.tool_calls.push_back({std::move(call.id), std::move(call.name),
                                  std::move(call.arguments)});
    }
    return reply;
  }

 private:
  std::optional<common_chat_msg> TryParse(const std::string& text,
                                          bool partial) const {
    std::optional<common_chat_msg> message;
    const auto parse = [&] {
      try {
        message = common_chat_parse(text, partial, params_);
      } catch (const std::exception&) {
      }
    };
    const size_t depth = PossibleDepth(text);
    if (depth <= kShallow) {
      parse();
    } else {
      const size_t stack = std::min(Vocabulary::kMaxStackBytes,
                                    (depth + kShallow) * kStackPerLevel);
      if (depth * kStackPerLevel > Vocabulary::kMaxStackBytes ||
          !RunOnStack(stack, parse).ok()) {
        return std::nullopt;
      }
    }
    return message;
  }

  const common_chat_parser_params params_;
};

}  // namespace

std::shared_ptr<const ReplySyntax> MakePegReplySyntax(
    common_chat_parser_params params) {
  SilenceLibraries();
  return std::make_shared<PegReplySyntax>(std::move(params));
}

}  // namespace everwarm::models
