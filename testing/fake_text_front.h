// A text front whose tokens are the bytes of the text.
#ifndef EVERWARM_TESTING_FAKE_TEXT_FRONT_H_
#define EVERWARM_TESTING_FAKE_TEXT_FRONT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/text_front.h"

namespace everwarm {

// Threads: any.
class FakeTextFront final : public server::TextFront {
 public:
  // What add_special puts in front.
  static constexpr TokenId kBos = 1;
  // The template refuses a conversation that begins with it.
  static constexpr char kRefused[] = "refuse me";
  // The tokenizer refuses a text that holds it.
  static constexpr char kUnsplittable[] = "cannot be split";

  absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text,
      const models::Vocabulary::TokenizeOptions& options) const override {
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

  // "[user]hello\n[assistant]".
  absl::StatusOr<models::RenderedPrompt> RenderChat(
      absl::Span<const models::ChatMessage> messages) const override {
    models::RenderedPrompt prompt;
    for (const models::ChatMessage& message : messages) {
      if (message.content == kRefused) {
        return absl::InvalidArgumentError("the template refuses it");
      }
      prompt.text += "[" + message.role + "]" + message.content + "\n";
    }
    prompt.text += "[assistant]";
    prompt.add_special = false;
    prompt.stops = {"[user]"};
    return prompt;
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
