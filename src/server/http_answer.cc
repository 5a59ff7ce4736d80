#include "server/http_answer.h"

namespace everwarm::server {

void SetJson(httplib::Response& response, int status, const Json& body) {
  response.status = status;
  response.set_content(DumpJson(body), "application/json");
}

namespace {

void SetErrorBody(httplib::Response& response, const ApiError& error,
                  const std::string& body) {
  response.status = error.http_status;
  if (error.retry_after_s > 0) {
    response.set_header("Retry-After", std::to_string(error.retry_after_s));
  }
  response.set_content(body, "application/json");
}

}  // namespace

void SetError(httplib::Response& response, const ApiError& error) {
  SetErrorBody(response, error, ErrorBody(error));
}

void SetError(const httplib::Request& request, httplib::Response& response,
              const ApiError& error) {
  const bool anthropic = request.path.starts_with("/v1/messages");
  SetErrorBody(response, error,
               anthropic ? AnthropicErrorBody(error) : ErrorBody(error));
}

}  // namespace everwarm::server
