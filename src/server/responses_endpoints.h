// OpenAI's /v1/responses.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_RESPONSES_ENDPOINTS_H_
#define EVERWARM_SERVER_RESPONSES_ENDPOINTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http_answer.h"
#include "server/reply_endpoint.h"
#include "server/response_store.h"
#include "server/service.h"

namespace everwarm::server {

class ResponsesEndpoints {
 public:
  // The service outlives this object.
  explicit ResponsesEndpoints(Service* service)
      : service_(service),
        store_(std::make_shared<ResponseStore>(ResponseStore::Limits())) {}

  // They refer to this object.
  Routes routes();

 private:
  absl::StatusOr<ReplyJob> Respond(const std::string& body);

  Service* const service_;
  // Shared with replies, which may outlive the handler.
  const std::shared_ptr<ResponseStore> store_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_RESPONSES_ENDPOINTS_H_
