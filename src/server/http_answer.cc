#include "server/http_answer.h"

namespace everwarm::server {

void SetJson(httplib::Response& response, int status, const Json& body) {
  response.status = status;
  response.set_content(DumpJson(body), "application/json");
}

void SetError(httplib::Response& response, const ApiError& error) {
  response.status = error.http_status;
  if (error.retry_after_s > 0) {
    response.set_header("Retry-After", std::to_string(error.retry_after_s));
  }
  response.set_content(ErrorBody(error), "application/json");
}

}  // namespace everwarm::server
