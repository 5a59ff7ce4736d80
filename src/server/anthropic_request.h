// The body of Anthropic's /v1/messages and /v1/messages/count_tokens.
//
// Threads: pure, any.
// Errors:  kInvalidArgument names the field (api_error.h).
#ifndef EVERWARM_SERVER_ANTHROPIC_REQUEST_H_
#define EVERWARM_SERVER_ANTHROPIC_REQUEST_H_

#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "server/generation_options.h"
#include "server/json_text.h"

namespace everwarm::server {

struct MessagesRequest {
  models::ChatPrompt prompt;
  GenerationOptions options;
  // Something is marked with "cache_control". Everything is cached anyway; it
  // only says how the usage counts what was computed.
  bool marks_cache = false;
};

// "max_tokens" is required, as in the API, unless only tokens are counted.
absl::StatusOr<MessagesRequest> ParseMessagesRequest(const Json& body,
                                                     bool only_count);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ANTHROPIC_REQUEST_H_
