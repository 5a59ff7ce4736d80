// The text front of a loaded GGUF.
#ifndef EVERWARM_SERVER_MODEL_TEXT_FRONT_H_
#define EVERWARM_SERVER_MODEL_TEXT_FRONT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_history.h"
#include "server/text_front.h"

namespace everwarm::server {

class ModelTextFront final : public TextFront {
 public:
  // All outlive this object. A text that shows by its bytes alone that it is
  // `max_tokens` or more is not tokenized: that can take minutes. Without a
  // history (null) every prompt is tokenized anew.
  ModelTextFront(const models::Vocabulary* vocabulary,
                 const models::ChatTemplate* chat_template, uint32_t max_tokens,
                 engine::TokenHistory* history = nullptr)
      : vocabulary_(vocabulary),
        chat_template_(chat_template),
        max_tokens_(max_tokens),
        history_(history) {}

  absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text,
      const models::Vocabulary::TokenizeOptions& options) const override;
  absl::StatusOr<std::vector<TokenId>> TokenizePrompt(
      std::string_view text, const models::Vocabulary::TokenizeOptions& options,
      std::string_view name_space) const override;
  absl::StatusOr<models::RenderedPrompt> RenderChat(
      const models::ChatPrompt& prompt) const override;
  absl::StatusOr<std::shared_ptr<const models::Grammar>> CompileGrammar(
      const models::GrammarSpec& grammar) const override;
  std::string Detokenize(absl::Span<const TokenId> tokens) const override;
  uint32_t vocab_size() const override;

 private:
  const models::Vocabulary* const vocabulary_;
  const models::ChatTemplate* const chat_template_;
  const uint32_t max_tokens_;
  engine::TokenHistory* const history_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_MODEL_TEXT_FRONT_H_
