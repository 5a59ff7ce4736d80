// Tokens as bytes, as far as generation needs them.
#ifndef EVERWARM_ENGINE_TOKEN_TEXT_H_
#define EVERWARM_ENGINE_TOKEN_TEXT_H_

#include <string>

#include "base/ids.h"
#include "models/vocabulary.h"

namespace everwarm::engine {

// Threads: any.
class TokenText {
 public:
  virtual ~TokenText() = default;
  // The bytes of a token, possibly a part of a UTF-8 sequence.
  virtual std::string Piece(TokenId token) const = 0;
  // The same, with a control token as its text.
  virtual std::string PieceWithControl(TokenId token) const = 0;
  virtual bool IsEndOfGeneration(TokenId token) const = 0;
};

// A model's own vocabulary, which outlives it.
class VocabularyTokenText final : public TokenText {
 public:
  explicit VocabularyTokenText(const models::Vocabulary* vocabulary)
      : vocabulary_(vocabulary) {}
  std::string Piece(TokenId token) const override {
    return vocabulary_->Piece(token);
  }
  std::string PieceWithControl(TokenId token) const override {
    return vocabulary_->PieceWithControl(token);
  }
  bool IsEndOfGeneration(TokenId token) const override {
    return vocabulary_->IsEndOfGeneration(token);
  }

 private:
  const models::Vocabulary* vocabulary_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_TOKEN_TEXT_H_
