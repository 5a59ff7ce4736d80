// The text front of a loaded GGUF.
#ifndef EVERWARM_SERVER_MODEL_TEXT_FRONT_H_
#define EVERWARM_SERVER_MODEL_TEXT_FRONT_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/text_front.h"

namespace everwarm::server {

class ModelTextFront final : public TextFront {
 public:
  // Both outlive this object.
  ModelTextFront(const models::Vocabulary* vocabulary,
                 const models::ChatTemplate* chat_template)
      : vocabulary_(vocabulary), chat_template_(chat_template) {}

  absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text,
      const models::Vocabulary::TokenizeOptions& options) const override;
  absl::StatusOr<models::RenderedPrompt> RenderChat(
      absl::Span<const models::ChatMessage> messages) const override;
  std::string Detokenize(absl::Span<const TokenId> tokens) const override;
  uint32_t vocab_size() const override;

 private:
  const models::Vocabulary* const vocabulary_;
  const models::ChatTemplate* const chat_template_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_MODEL_TEXT_FRONT_H_
