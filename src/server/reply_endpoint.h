// Answers an HTTP request with what the engine generates, whole or streamed, in
// any API's form.
//
// Threads: any HTTP worker.
#ifndef EVERWARM_SERVER_REPLY_ENDPOINT_H_
#define EVERWARM_SERVER_REPLY_ENDPOINT_H_

#include <httplib.h>

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/reply_form.h"
#include "server/service.h"

namespace everwarm::server {

struct ReplyJob {
  // One for each choice that the form expects.
  std::vector<engine::Request> requests;
  std::unique_ptr<ReplyForm> form;
  bool stream = false;
};

// `prepare` makes the job of the request, or says why there is none. It may
// take long, so it is not called unless there is a place inside the gate. Holds
// the worker until a whole reply is there; a streamed one goes on in the
// response's content provider.
void AnswerWithReply(Service& service,
                     absl::FunctionRef<absl::StatusOr<ReplyJob>()> prepare,
                     const httplib::Request& request,
                     httplib::Response& response);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REPLY_ENDPOINT_H_
