// Errors as the OpenAI API writes them, and how a status becomes one.
#ifndef EVERWARM_SERVER_API_ERROR_H_
#define EVERWARM_SERVER_API_ERROR_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace everwarm::server {

struct ApiError {
  int http_status = 500;
  std::string message;
  // "invalid_request_error", "server_error" and so on.
  std::string type;
  // The field that is wrong, and a word for programs; empty: null in the JSON.
  std::string param;
  std::string code;
  // Seconds for a Retry-After header; 0: none.
  int retry_after_s = 0;
};

// kInvalidArgument that remembers which field is wrong and a word for programs.
absl::Status InvalidRequest(const std::string& message,
                            const std::string& param = "",
                            const std::string& code = "");

// The status with a word for programs.
absl::Status WithCode(absl::Status status, const std::string& code);

// The error of a request that was refused before anything was computed. Never
// 5xx for what the client did wrong.
ApiError RefusalError(const absl::Status& status);

// The error of a request that was accepted and failed later.
ApiError ReplyFailureError(const absl::Status& status);

// The server ends while a reply runs.
ApiError StoppingError();

// What HTTP itself refuses: a path that is not there, a body too large.
ApiError HttpError(int http_status, std::string_view detail);

// {"error": {...}}, always valid UTF-8.
std::string ErrorBody(const ApiError& error);
// {"type": "error", "error": {...}}: the same in Anthropic's form.
std::string AnthropicErrorBody(const ApiError& error);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_API_ERROR_H_
