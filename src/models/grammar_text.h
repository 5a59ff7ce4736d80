// Whether a text is a grammar (GBNF).
//
// The library says what is wrong with one that is not to stderr, with all of
// the text; this says it to the caller.
#ifndef EVERWARM_MODELS_GRAMMAR_TEXT_H_
#define EVERWARM_MODELS_GRAMMAR_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "llama.h"

namespace everwarm::models {

// Recurses for each bracket of the text.
//
// Threads: any.
// Errors:  kInvalidArgument, with the parser's words and where it stopped.
absl::Status CheckGrammarText(const llama_vocab* vocab,
                              const std::string& text);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_GRAMMAR_TEXT_H_
