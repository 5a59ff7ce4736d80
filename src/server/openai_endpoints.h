// Chat and completions of the OpenAI API.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_OPENAI_ENDPOINTS_H_
#define EVERWARM_SERVER_OPENAI_ENDPOINTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/http_answer.h"
#include "server/reply_endpoint.h"
#include "server/service.h"

namespace everwarm::server {

class OpenAiEndpoints {
 public:
  // The service outlives this object.
  explicit OpenAiEndpoints(Service* service) : service_(service) {}

  // They refer to this object.
  Routes routes();

 private:
  absl::StatusOr<ReplyJob> Chat(const std::string& body);
  absl::StatusOr<ReplyJob> Completions(const std::string& body);

  Service* const service_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_ENDPOINTS_H_
