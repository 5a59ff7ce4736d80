// Chat and completions of the OpenAI API.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_OPENAI_ENDPOINTS_H_
#define EVERWARM_SERVER_OPENAI_ENDPOINTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/http_answer.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "server/service.h"

namespace everwarm::server {

class OpenAiEndpoints {
 public:
  // The service outlives this object.
  explicit OpenAiEndpoints(Service* service) : service_(service) {}

  // They refer to this object.
  Routes routes();

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  // A request that is ready for the engine.
  struct Prepared {
    engine::Request request;
    bool stream = false;
    bool include_usage = false;
  };
  absl::StatusOr<Prepared> PrepareChat(const std::string& body) const;
  absl::StatusOr<Prepared> PrepareText(const std::string& body) const;
  absl::StatusOr<Prepared> Prepare(std::vector<TokenId> prompt,
                                   GenerationOptions options,
                                   uint32_t default_max_tokens) const;

  void Complete(CompletionKind kind, absl::StatusOr<Prepared> prepared,
                const Request& request, Response& response);
  void CompleteWhole(const ReplyIdentity& identity, engine::Reply& reply,
                     const Request& request, Response& response);
  void CompleteStreamed(const ReplyIdentity& identity,
                        std::unique_ptr<engine::Reply> reply,
                        GenerationGate::Pass pass, const Request& request,
                        Response& response);

  ReplyIdentity NewIdentity(CompletionKind kind, bool include_usage);

  Service* const service_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_ENDPOINTS_H_
