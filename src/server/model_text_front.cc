#include "server/model_text_front.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"

namespace everwarm::server {

absl::StatusOr<std::vector<TokenId>> ModelTextFront::Tokenize(
    std::string_view text,
    const models::Vocabulary::TokenizeOptions& options) const {
  if (const uint64_t least = vocabulary_->MinTokens(text);
      least >= max_tokens_) {
    return InvalidRequest(
        absl::StrCat("the context holds ", max_tokens_,
                     " tokens, and a text of ", text.size(),
                     " bytes such as this one has at least ", least),
        "", "context_length_exceeded");
  }
  return vocabulary_->Tokenize(text, options);
}

absl::StatusOr<std::vector<TokenId>> ModelTextFront::TokenizePrompt(
    std::string_view text, const models::Vocabulary::TokenizeOptions& options,
    std::string_view name_space) const {
  if (history_ == nullptr) {
    return Tokenize(text, options);
  }
  std::vector<TokenId> unwritten;
  if (options.add_special) {
    EW_ASSIGN_OR_RETURN(unwritten, vocabulary_->Tokenize("", options));
  }
  std::optional<engine::TokenHistory::Known> known =
      history_->Find(name_space, text, unwritten);
  if (!known.has_value()) {
    return Tokenize(text, options);
  }
  EW_ASSIGN_OR_RETURN(
      const std::vector<TokenId> rest,
      Tokenize(text.substr(known->bytes),
               {.add_special = false, .parse_special = options.parse_special}));
  // Some tokenizers put something between.
  if (Detokenize(rest) != text.substr(known->bytes)) {
    return Tokenize(text, options);
  }
  std::vector<TokenId> tokens = std::move(known->tokens);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

absl::StatusOr<models::RenderedPrompt> ModelTextFront::RenderChat(
    const models::ChatPrompt& prompt) const {
  return chat_template_->Render(prompt);
}

absl::StatusOr<std::shared_ptr<const models::Grammar>>
ModelTextFront::CompileGrammar(const models::GrammarSpec& grammar) const {
  return models::Grammar::Compile(*vocabulary_, grammar);
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
