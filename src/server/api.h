// What each path answers. The only file besides server.cc that sees the HTTP
// library.
//
// Threads: all handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_API_H_
#define EVERWARM_SERVER_API_H_

#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "server/api_error.h"
#include "server/generation_gate.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "server/server.h"
#include "server/text_front.h"

namespace everwarm::server {

void SetJson(httplib::Response& response, int status, const Json& body);
void SetError(httplib::Response& response, const ApiError& error);

class Api {
 public:
  // The clock outlives this object.
  Api(const Server::Config& config, const Clock* clock, Logger logger);

  void SetReady(engine::Engine* engine, const TextFront* text_front);
  bool ready() const { return ready_.load(std::memory_order_acquire); }

  GenerationGate& gate() { return gate_; }
  // What runs is cut off at its next look at the connection.
  void CutOff() { cut_off_.store(true); }

  using Request = httplib::Request;
  using Response = httplib::Response;
  void Health(const Request& request, Response& response);
  // Requires of all below: ready().
  void Models(const Request& request, Response& response);
  void Model(const Request& request, Response& response);
  void ChatCompletions(const Request& request, Response& response);
  void Completions(const Request& request, Response& response);
  void Tokenize(const Request& request, Response& response);
  void Detokenize(const Request& request, Response& response);
  void Stats(const Request& request, Response& response);
  void Flush(const Request& request, Response& response);

 private:
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
  absl::Status CheckTokens(const std::vector<TokenId>& tokens,
                           const char* field) const;

  const Clock* const clock_;
  const Logger logger_;
  const std::chrono::milliseconds flush_timeout_;
  const Clock::Monotonic started_;
  const int64_t created_;  // seconds since 1970
  GenerationGate gate_;
  std::atomic<bool> cut_off_{false};

  // Written once, before ready_.
  engine::Engine* engine_ = nullptr;
  const TextFront* text_front_ = nullptr;
  std::string model_id_;
  std::atomic<bool> ready_{false};

  // Ids of replies: a part that differs between runs, and a count.
  const std::string run_id_;
  std::atomic<uint64_t> next_reply_{0};
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_API_H_
