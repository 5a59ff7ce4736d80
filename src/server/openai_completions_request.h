// The bodies of /v1/completions, /tokenize and /detokenize.
//
// Threads: pure, any.
// Errors:  kInvalidArgument (api_error.h).
#ifndef EVERWARM_SERVER_OPENAI_COMPLETIONS_REQUEST_H_
#define EVERWARM_SERVER_OPENAI_COMPLETIONS_REQUEST_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "server/generation_options.h"
#include "server/json_text.h"
#include "server/prompt_fields.h"

namespace everwarm::server {

// Text or token ids; never empty.
using CompletionPrompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  // At least one; all of one kind. Ids are 0 or more; whether the vocabulary
  // has them is not checked.
  std::vector<CompletionPrompt> prompts;
  GenerationOptions options;
  // The reply begins with the prompt.
  bool echo = false;
  // What the reply must follow.
  ReplyFields form;
};

struct TokenizeRequest {
  std::string content;
  bool add_special = false;
  bool parse_special = true;
};

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const Json& body);
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(const Json& body);
absl::StatusOr<std::vector<TokenId>> ParseDetokenizeRequest(const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_COMPLETIONS_REQUEST_H_
