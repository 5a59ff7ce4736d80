// A text front whose tokens are the bytes of the text.
#ifndef EVERWARM_TESTING_FAKE_TEXT_FRONT_H_
#define EVERWARM_TESTING_FAKE_TEXT_FRONT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/text_front.h"

namespace everwarm {

// Reads "~reasoning~content@name:arguments@name:arguments"; what begins with
// '!' does not fit.
//
// Threads: any.
class FakeReplySyntax final : public models::ReplySyntax {
 public:
  std::optional<models::ParsedReply> Parse(const std::string& text,
                                           bool partial) const override {
    if (text.starts_with("!")) {
      return std::nullopt;
    }
    models::ParsedReply reply;
    std::string rest = text;
    const auto take_until = [&](const char* ends) {
      const size_t end = rest.find_first_of(ends);
      const std::string taken = rest.substr(0, end);
      rest.erase(0, end == std::string::npos ? end : end + 1);
      return taken;
    };
    if (rest.starts_with("~")) {
      rest.erase(0, 1);
      reply.reasoning = take_until("~");
    }
    reply.content = take_until("@");
    while (!rest.empty()) {
      const bool named = rest.find(':') != std::string::npos;
      const std::string name = take_until(":");
      if (named || !partial) {
        reply.tool_calls.push_back({"", name, take_until("@")});
      }
    }
    return reply;
  }
};

// Threads: any.
class FakeTextFront final : public server::TextFront {
 public:
  // What add_special puts in front.
  static constexpr TokenId kBos = 1;
  // The template refuses a conversation that begins with it.
  static constexpr char kRefused[] = "refuse me";
  // The tokenizer refuses a text that holds it.
  static constexpr char kUnsplittable[] = "cannot be split";

  // Called at the begin of Tokenize(), by any thread. Set before the first.
  std::function<void()> on_tokenize;

  absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text,
      const models::Vocabulary::TokenizeOptions& options) const override {
    if (on_tokenize) {
      on_tokenize();
    }
    if (text.find(kUnsplittable) != std::string_view::npos) {
      return absl::InvalidArgumentError("the text cannot be split");
    }
    std::vector<TokenId> tokens;
    if (options.add_special) {
      tokens.push_back(kBos);
    }
    for (const char byte : text) {
      tokens.push_back(static_cast<uint8_t>(byte));
    }
    return tokens;
  }

  // "[tools]look\n[user]hello\n[assistant]~hm~hi@look:{}\n[assistant]".
  absl::StatusOr<models::RenderedPrompt> RenderChat(
      const models::ChatPrompt& chat) const override {
    models::RenderedPrompt prompt;
    for (const models::ChatTool& tool : chat.tools) {
      prompt.text += "[tools]" + tool.name + "\n";
    }
    for (const models::ChatMessage& message : chat.messages) {
      if (message.content == kRefused) {
        return absl::InvalidArgumentError("the template refuses it");
      }
      prompt.text += "[" + message.role + "]";
      if (!message.reasoning.empty()) {
        prompt.text += "~" + message.reasoning + "~";
      }
      prompt.text += message.content;
      for (const models::ToolCall& call : message.tool_calls) {
        prompt.text += "@" + call.name + ":" + call.arguments;
      }
      prompt.text += "\n";
    }
    if (chat.continue_last) {
      prompt.text.pop_back();
    } else {
      prompt.text += "[assistant]";
      prompt.cue_bytes = std::string_view("[assistant]").size();
    }
    prompt.add_special = false;
    prompt.stops = {"[user]"};
    if (!chat.tools.empty() || chat.thinking) {
      prompt.syntax = std::make_shared<FakeReplySyntax>();
    }
    const std::string grammar = chat.grammar + chat.json_schema;
    if (!grammar.empty()) {
      prompt.grammar = models::GrammarSpec{.text = grammar};
    }
    return prompt;
  }

  // None is made; a text that holds kRefused is refused.
  absl::StatusOr<std::shared_ptr<const models::Grammar>> CompileGrammar(
      const models::GrammarSpec& grammar) const override {
    if (grammar.text.find(kRefused) != std::string::npos) {
      return absl::InvalidArgumentError("the grammar cannot be followed");
    }
    return std::shared_ptr<const models::Grammar>();
  }

  std::string Detokenize(absl::Span<const TokenId> tokens) const override {
    std::string text;
    for (const TokenId token : tokens) {
      text.push_back(static_cast<char>(token));
    }
    return text;
  }

  uint32_t vocab_size() const override { return 256; }
};

// The text of tokens that FakeTextFront made.
inline std::string TextOf(absl::Span<const TokenId> tokens) {
  return FakeTextFront().Detokenize(tokens);
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_FAKE_TEXT_FRONT_H_
