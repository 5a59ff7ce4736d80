#include "server/reply_endpoint.h"

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "server/http_answer.h"
#include "server/reply_set.h"
#include "server/request_headers.h"
#include "server/sse.h"

namespace everwarm::server {
namespace {

using std::chrono::milliseconds;

// A stream's headers wait so long for its first event, so that what fails at
// once is an HTTP error; after that it is an event of the stream.
constexpr milliseconds kFirstEventGrace{1000};

void AnswerWhole(Service& service, ReplyForm& form, ReplySet& replies,
                 const httplib::Request& request, httplib::Response& response) {
  auto outcome = CollectReplies(replies, [&] {
    return service.cut_off() || request.is_connection_closed();
  });
  if (auto* choices = std::get_if<std::vector<WholeChoice>>(&outcome)) {
    SetJson(response, 200, form.Whole(std::move(*choices)));
  } else if (const auto* error = std::get_if<ApiError>(&outcome)) {
    service.logger().error("{}: {}", form.id(), error->message);
    SetError(request, response, *error);
  } else {
    // Nobody reads this, unless it was us who cut it off.
    SetError(request, response, StoppingError());
  }
}

// False: the response is an error, and there will be no stream.
bool WaitForFirstEvent(Service& service, const ReplyForm& form,
                       ReplySet& replies, const httplib::Request& request,
                       httplib::Response& response) {
  std::optional<ReplySet::Event> first;
  const auto begun = std::chrono::steady_clock::now();
  while (!first &&
         std::chrono::steady_clock::now() - begun < kFirstEventGrace) {
    first = replies.Next(SseReply::kPoll);
    if (!first && (service.cut_off() || request.is_connection_closed())) {
      SetError(request, response, StoppingError());
      return false;
    }
  }
  if (!first) {
    return true;
  }
  if (const auto* failed = std::get_if<engine::FailedEvent>(&first->event)) {
    const ApiError error = ReplyFailureError(failed->status);
    service.logger().error("{}: {}", form.id(), error.message);
    SetError(request, response, error);
    return false;
  }
  replies.PutBack(*std::move(first));
  return true;
}

void AnswerStreamed(Service& service, std::unique_ptr<ReplyForm> form,
                    ReplySet replies, GenerationGate::Pass pass,
                    const httplib::Request& request,
                    httplib::Response& response) {
  if (!WaitForFirstEvent(service, *form, replies, request, response)) {
    return;
  }
  // The library copies the provider, so what it owns is shared.
  struct Stream {
    GenerationGate::Pass pass;  // outlives the reply
    std::unique_ptr<SseReply> reply;
  };
  auto stream = std::make_shared<Stream>(
      Stream{std::move(pass),
             std::make_unique<SseReply>(std::move(form), std::move(replies),
                                        &service.clock())});
  const auto provider = [stream](size_t, httplib::DataSink& sink) {
    const SseSink out = {[&sink](std::string_view bytes) {
      return sink.write(bytes.data(), bytes.size());
    }};
    const SseReply::State state = stream->reply->Step(out);
    if (state == SseReply::State::kComplete) {
      sink.done();
    }
    return state != SseReply::State::kClientGone;
  };
  response.set_header("Cache-Control", "no-cache");
  // Proxies that buffer would turn a stream into one late piece.
  response.set_header("X-Accel-Buffering", "no");
  constexpr char kType[] = "text/event-stream; charset=utf-8";
  if (request.version == "HTTP/1.0") {
    response.set_content_provider(kType, provider);  // knows no chunks
  } else {
    response.set_chunked_content_provider(kType, provider);
  }
}

}  // namespace

void AnswerWithReply(Service& service,
                     absl::FunctionRef<absl::StatusOr<ReplyJob>()> prepare,
                     const httplib::Request& request,
                     httplib::Response& response) {
  absl::StatusOr<GenerationGate::Pass> pass = service.Enter();
  if (!pass.ok()) {
    SetError(request, response, RefusalError(pass.status()));
    return;
  }
  absl::StatusOr<ReplyJob> job = prepare();
  if (!job.ok()) {
    SetError(request, response, RefusalError(job.status()));
    return;
  }
  for (engine::Request& one : job->requests) {
    ApplyHeaders(request, service, one);
  }
  absl::StatusOr<ReplySet> replies =
      ReplySet::Submit(service.engine(), std::move(job->requests));
  if (!replies.ok()) {
    SetError(request, response, RefusalError(replies.status()));
    return;
  }
  if (job->stream) {
    AnswerStreamed(service, std::move(job->form), *std::move(replies),
                   *std::move(pass), request, response);
  } else {
    AnswerWhole(service, *job->form, *replies, request, response);
  }
}

}  // namespace everwarm::server
