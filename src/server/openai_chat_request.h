// The body of /v1/chat/completions, checked field by field.
//
// What is not known is ignored; what is known and not done here is refused with
// the field's name, so that nobody gets another answer than the one asked for.
//
// Threads: pure, any.
// Errors:  kInvalidArgument (api_error.h).
#ifndef EVERWARM_SERVER_OPENAI_CHAT_REQUEST_H_
#define EVERWARM_SERVER_OPENAI_CHAT_REQUEST_H_

#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "server/generation_options.h"
#include "server/json_text.h"

namespace everwarm::server {

struct ChatRequest {
  models::ChatPrompt prompt;
  GenerationOptions options;
};

absl::StatusOr<ChatRequest> ParseChatRequest(const Json& body);

// The options that chat and completions share: ReadOptions()'s, "n",
// "stream_options", "stop", "max_tokens" (and its newer name), "ignore_eos".
absl::StatusOr<GenerationOptions> ReadOpenAiOptions(const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_CHAT_REQUEST_H_
