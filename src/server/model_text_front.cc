#include "server/model_text_front.h"

namespace everwarm::server {

absl::StatusOr<std::vector<TokenId>> ModelTextFront::Tokenize(
    std::string_view text,
    const models::Vocabulary::TokenizeOptions& options) const {
  return vocabulary_->Tokenize(text, options);
}

absl::StatusOr<models::RenderedPrompt> ModelTextFront::RenderChat(
    absl::Span<const models::ChatMessage> messages) const {
  return chat_template_->Render(messages);
}

std::string ModelTextFront::Detokenize(absl::Span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens) {
    text += vocabulary_->PieceWithControl(token);
  }
  return text;
}

uint32_t ModelTextFront::vocab_size() const { return vocabulary_->size(); }

}  // namespace everwarm::server
