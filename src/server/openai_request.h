// Bodies of the OpenAI API, checked field by field, as values.
//
// What is not known is ignored; what is known and not done here is refused with
// the field's name, so that nobody gets another answer than the one asked for.
//
// Threads: pure, any.
// Errors:  kInvalidArgument (api_error.h).
#ifndef EVERWARM_SERVER_OPENAI_REQUEST_H_
#define EVERWARM_SERVER_OPENAI_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "models/chat_template.h"
#include "server/json_text.h"

namespace everwarm::server {

// What both kinds of completion have.
struct GenerationOptions {
  bool stream = false;
  bool include_usage = false;
  // Nothing: until the context is full (chat) or 16 (completions).
  std::optional<uint32_t> max_tokens;
  engine::SamplingParams sampling;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  // From "cache_salt"; empty: the common one.
  std::string name_space;
};

struct ChatRequest {
  // Roles are "system", "user", "assistant" and "tool"; "developer" is
  // "system".
  std::vector<models::ChatMessage> messages;
  GenerationOptions options;
};

struct CompletionRequest {
  // Never empty.
  std::variant<std::string, std::vector<TokenId>> prompt;
  GenerationOptions options;
};

struct TokenizeRequest {
  std::string content;
  bool add_special = false;
  bool parse_special = true;
};

absl::StatusOr<ChatRequest> ParseChatRequest(const Json& body);
absl::StatusOr<CompletionRequest> ParseCompletionRequest(const Json& body);
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(const Json& body);
// The ids are 0 or more; whether the vocabulary has them is not checked.
absl::StatusOr<std::vector<TokenId>> ParseDetokenizeRequest(const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_REQUEST_H_
