// Text to tokens and back, and chat templates, by llama.cpp (vocabulary only;
// its model is never loaded).
#ifndef EVERWARM_MODELS_VOCABULARY_H_
#define EVERWARM_MODELS_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "models/token_bound.h"

struct llama_model;
struct llama_vocab;

namespace everwarm::models {

// Threads: immutable after Load(), any.
class Vocabulary {
 public:
  // Errors: kInvalidArgument names the file and what is wrong.
  static absl::StatusOr<std::unique_ptr<Vocabulary>> Load(
      const std::string& path);
  ~Vocabulary();

  struct TokenizeOptions {
    // Adds what the model expects at the start (BOS), if it expects it.
    bool add_special = true;
    // Text such as "<|im_end|>" becomes its control token.
    bool parse_special = true;
  };
  // Blocks: for the work itself, about 1 s for 1 MB; no lock.
  // Errors: kInvalidArgument, the tokenizer refuses the text, or the text is so
  // long that splitting it would need more stack than kMaxStackBytes.
  absl::StatusOr<std::vector<TokenId>> Tokenize(
      std::string_view text, const TokenizeOptions& options) const;

  // A lower bound for the tokens of a text; fast, whatever the text.
  uint64_t MinTokens(std::string_view text) const {
    return bound_.MinTokens(text);
  }

  // The bytes of one token; control tokens give nothing. May end inside a UTF-8
  // sequence.
  std::string Piece(TokenId token) const;
  // The same, with control tokens as their text.
  std::string PieceWithControl(TokenId token) const;

  bool IsEndOfGeneration(TokenId token) const;
  uint32_t size() const;

  static constexpr size_t kMaxStackBytes = size_t{1} << 30;

  const llama_vocab* llama() const { return vocab_; }
  const llama_model* llama_model_handle() const { return model_; }

 private:
  Vocabulary() = default;
  void MeasureStack();
  void MeasurePieces();
  std::string PieceOf(TokenId token, bool control) const;

  llama_model* model_ = nullptr;
  const llama_vocab* vocab_ = nullptr;
  // Stack that tokenizing may take per byte of text; 0: none that matters.
  size_t stack_per_byte_ = 0;
  TokenBound bound_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_VOCABULARY_H_
