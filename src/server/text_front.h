// Text to tokens and back, as the server needs it. In the product the model's
// vocabulary and chat template stand behind it (model_text_front.h).
#ifndef EVERWARM_SERVER_TEXT_FRONT_H_
#define EVERWARM_SERVER_TEXT_FRONT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "models/chat_prompt.h"
#include "models/chat_template.h"
#include "models/grammar.h"
#include "models/vocabulary.h"

namespace everwarm::server {

// Threads: any.
class TextFront {
 public:
  virtual ~TextFront() = default;

  // Errors: kInvalidArgument, the text cannot be tokenized.
  virtual absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text,
      const models::Vocabulary::TokenizeOptions& options) const = 0;

  // The same for the text of a prompt, in the namespace where its KV is looked
  // for: what was generated there keeps the tokens that it was generated as.
  virtual absl::StatusOr<std::vector<TokenId>> TokenizePrompt(
      std::string_view text, const models::Vocabulary::TokenizeOptions& options,
      std::string_view name_space) const {
    static_cast<void>(name_space);
    return Tokenize(text, options);
  }

  // Errors: kInvalidArgument, the template refuses these messages, or a schema
  // cannot be followed.
  virtual absl::StatusOr<models::RenderedPrompt> RenderChat(
      const models::ChatPrompt& prompt) const = 0;

  // Errors: kInvalidArgument, it cannot be followed.
  virtual absl::StatusOr<std::shared_ptr<const models::Grammar>> CompileGrammar(
      const models::GrammarSpec& grammar) const = 0;

  // Control tokens as their text. The bytes may be cut inside a character.
  // Requires: 0 <= token < vocab_size().
  virtual std::string Detokenize(absl::Span<const TokenId> tokens) const = 0;

  virtual uint32_t vocab_size() const = 0;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_TEXT_FRONT_H_
