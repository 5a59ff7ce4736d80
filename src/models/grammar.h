// Grammars (GBNF) that a reply must follow, by llama.cpp.
#ifndef EVERWARM_MODELS_GRAMMAR_H_
#define EVERWARM_MODELS_GRAMMAR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "models/vocabulary.h"

namespace everwarm::models {

struct GrammarSpec {
  std::string text;  // its root is "root"
  // A lazy grammar leaves the reply free until one of these appears, and is
  // followed from there on.
  bool lazy = false;
  std::vector<std::string> trigger_words;
  // Regular expressions; the first group, or all, is where it begins.
  std::vector<std::string> trigger_patterns;
  // What the grammar begins with and the prompt already holds. Not for lazy
  // ones.
  std::string behind;
};

// A grammar and how far a reply has followed it.
//
// Threads: one at a time; Clone() and const calls of an object that nobody
//          changes from any.
class Grammar {
 public:
  // Errors: kInvalidArgument, the text is no grammar, or one that cannot be
  // followed.
  static absl::StatusOr<std::unique_ptr<Grammar>> Compile(
      const Vocabulary& vocabulary, const GrammarSpec& spec);
  ~Grammar();
  std::unique_ptr<Grammar> Clone() const;

  // False while a lazy grammar waits.
  bool constrains() const;
  bool Allows(TokenId token) const;
  // Sets the logits of tokens that may not come next to minus infinity.
  // Shapes: logits [vocabulary size].
  void Mask(absl::Span<float> logits) const;
  // The reply goes on with it; an end-of-generation token changes nothing. What
  // a lazy grammar begins with and then does not fit leaves the reply free.
  // Errors: kInternal, the grammar does not allow it.
  absl::Status Accept(TokenId token);

 private:
  struct State;
  explicit Grammar(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The grammar of JSON texts that fit a schema.
// Errors: kInvalidArgument with the converter's words.
absl::StatusOr<std::string> JsonSchemaGrammar(const std::string& schema);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_GRAMMAR_H_
