// The body of /v1/responses.
//
// Threads: pure, any.
// Errors:  kInvalidArgument names the field (api_error.h).
#ifndef EVERWARM_SERVER_RESPONSES_REQUEST_H_
#define EVERWARM_SERVER_RESPONSES_REQUEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "server/generation_options.h"
#include "server/json_text.h"

namespace everwarm::server {

struct ResponsesRequest {
  // Its messages are the input's alone.
  models::ChatPrompt prompt;
  GenerationOptions options;
  // The system's message for this response only; empty: none.
  std::string instructions;
  // Whose conversation goes on; empty: a new one.
  std::string previous_response_id;
  bool store = true;
  // Fields of the request that the response repeats.
  Json echo = Json::object();
};

absl::StatusOr<ResponsesRequest> ParseResponsesRequest(const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_RESPONSES_REQUEST_H_
