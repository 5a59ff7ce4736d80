#include "models/grammar_text.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "llama-grammar.h"

namespace everwarm::models {
namespace {

// The parser's words end with all that it has not read.
constexpr size_t kMaxWords = 160;

absl::Status Refusal(const std::string& words) {
  return absl::InvalidArgumentError(
      words.size() <= kMaxWords
          ? words
          : absl::StrCat(words.substr(0, kMaxWords), "..."));
}

// Behind spaces, line ends and comments.
const char* FirstRule(const char* text) {
  bool comment = false;
  for (; *text != '\0'; ++text) {
    if (*text == '\r' || *text == '\n') {
      comment = false;
    } else if (*text == '#') {
      comment = true;
    } else if (!comment && *text != ' ' && *text != '\t') {
      break;
    }
  }
  return text;
}

// The name of a rule that others refer to and that is not there; empty: none.
std::string MissingRule(const llama_grammar_parser& parser) {
  for (const auto& [name, id] : parser.symbol_ids) {
    if (id >= parser.rules.size() || parser.rules[id].empty()) {
      return name;
    }
  }
  return std::string();
}

}  // namespace

absl::Status CheckGrammarText(const llama_vocab* vocab,
                              const std::string& text) {
  llama_grammar_parser parser(vocab);
  try {
    for (const char* at = FirstRule(text.c_str()); *at != '\0';) {
      at = parser.parse_rule(at);
    }
  } catch (const std::exception& error) {
    return Refusal(error.what());
  }
  if (const std::string missing = MissingRule(parser); !missing.empty()) {
    return Refusal(absl::StrCat("there is no rule '", missing, "'"));
  }
  if (!parser.symbol_ids.contains("root")) {
    return Refusal("there is no rule 'root'");
  }
  return absl::OkStatus();
}

}  // namespace everwarm::models
