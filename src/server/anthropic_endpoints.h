// Anthropic's API.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_ANTHROPIC_ENDPOINTS_H_
#define EVERWARM_SERVER_ANTHROPIC_ENDPOINTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/http_answer.h"
#include "server/reply_endpoint.h"
#include "server/service.h"

namespace everwarm::server {

class AnthropicEndpoints {
 public:
  // The service outlives this object.
  explicit AnthropicEndpoints(Service* service) : service_(service) {}

  // They refer to this object.
  Routes routes();

 private:
  absl::StatusOr<ReplyJob> Messages(const std::string& body);
  void CountTokens(const httplib::Request& request,
                   httplib::Response& response);

  Service* const service_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ANTHROPIC_ENDPOINTS_H_
