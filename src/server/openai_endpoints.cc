#include "server/openai_endpoints.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/collected_reply.h"
#include "server/request_headers.h"
#include "server/sse.h"

namespace everwarm::server {
namespace {

// What OpenAI generates when a completion does not say how much.
constexpr uint32_t kDefaultCompletionTokens = 16;
// A stream's headers wait so long for its first event, so that what fails at
// once is an HTTP error; after that it is an event of the stream.
constexpr std::chrono::milliseconds kFirstEventGrace{1000};

}  // namespace

Routes OpenAiEndpoints::routes() {
  return {{"POST", "/v1/chat/completions",
           [this](const Request& request, Response& response) {
             Complete(CompletionKind::kChat, PrepareChat(request.body), request,
                      response);
           }},
          {"POST", "/v1/completions",
           [this](const Request& request, Response& response) {
             Complete(CompletionKind::kText, PrepareText(request.body), request,
                      response);
           }}};
}

absl::StatusOr<OpenAiEndpoints::Prepared> OpenAiEndpoints::PrepareChat(
    const std::string& text) const {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(ChatRequest chat, ParseChatRequest(body));
  EW_ASSIGN_OR_RETURN(models::RenderedPrompt rendered,
                      service_->text_front().RenderChat(chat.messages));
  EW_ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                      service_->text_front().Tokenize(
                          rendered.text, {.add_special = rendered.add_special,
                                          .parse_special = true}));
  for (std::string& stop : rendered.stops) {
    chat.options.stops.push_back(std::move(stop));
  }
  return Prepare(std::move(prompt), std::move(chat.options),
                 std::numeric_limits<uint32_t>::max());
}

absl::StatusOr<OpenAiEndpoints::Prepared> OpenAiEndpoints::PrepareText(
    const std::string& text) const {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(CompletionRequest completion,
                      ParseCompletionRequest(body));
  std::vector<TokenId> prompt;
  if (const auto* words = std::get_if<std::string>(&completion.prompt)) {
    EW_ASSIGN_OR_RETURN(prompt, service_->text_front().Tokenize(*words, {}));
  } else {
    prompt = std::get<std::vector<TokenId>>(std::move(completion.prompt));
    EW_RETURN_IF_ERROR(service_->CheckTokens(prompt, "prompt"));
  }
  return Prepare(std::move(prompt), std::move(completion.options),
                 kDefaultCompletionTokens);
}

absl::StatusOr<OpenAiEndpoints::Prepared> OpenAiEndpoints::Prepare(
    std::vector<TokenId> prompt, GenerationOptions options,
    uint32_t default_max_tokens) const {
  if (prompt.empty()) {
    return InvalidRequest("the prompt has no tokens", "prompt", "empty_prompt");
  }
  const uint32_t context = service_->engine().context_size();
  if (prompt.size() >= context) {
    return InvalidRequest(
        absl::StrCat("the context holds ", context,
                     " tokens, prompt and reply together, and the prompt has ",
                     prompt.size(), "; it may have ", context - 1),
        "", "context_length_exceeded");
  }
  Prepared prepared;
  prepared.stream = options.stream;
  prepared.include_usage = options.include_usage;
  engine::Request& request = prepared.request;
  request.max_tokens = std::min(options.max_tokens.value_or(default_max_tokens),
                                context - static_cast<uint32_t>(prompt.size()));
  request.prompt = std::move(prompt);
  request.name_space = std::move(options.name_space);
  request.sampling = options.sampling;
  request.stops = std::move(options.stops);
  request.ignore_eos = options.ignore_eos;
  return prepared;
}

void OpenAiEndpoints::Complete(CompletionKind kind,
                               absl::StatusOr<Prepared> prepared,
                               const Request& request, Response& response) {
  if (!prepared.ok()) {
    SetError(response, RefusalError(prepared.status()));
    return;
  }
  absl::StatusOr<GenerationGate::Pass> pass = service_->Enter();
  if (!pass.ok()) {
    SetError(response, RefusalError(pass.status()));
    return;
  }
  ApplyHeaders(request, *service_, prepared->request);
  absl::StatusOr<std::unique_ptr<engine::Reply>> reply =
      service_->engine().Submit(std::move(prepared->request));
  if (!reply.ok()) {
    SetError(response, RefusalError(reply.status()));
    return;
  }
  const ReplyIdentity identity = NewIdentity(kind, prepared->include_usage);
  if (prepared->stream) {
    CompleteStreamed(identity, *std::move(reply), *std::move(pass), request,
                     response);
  } else {
    CompleteWhole(identity, **reply, request, response);
  }
}

void OpenAiEndpoints::CompleteWhole(const ReplyIdentity& identity,
                                    engine::Reply& reply,
                                    const Request& request,
                                    Response& response) {
  const auto outcome = CollectReply(reply, [&] {
    return service_->cut_off() || request.is_connection_closed();
  });
  if (const auto* whole = std::get_if<CollectedReply>(&outcome)) {
    SetJson(response, 200, WholeReply(identity, whole->text, whole->finished));
  } else if (const auto* error = std::get_if<ApiError>(&outcome)) {
    service_->logger().error("{}: {}", identity.id, error->message);
    SetError(response, *error);
  } else {
    // Nobody reads this, unless it was us who cut it off.
    SetError(response, StoppingError());
  }
}

void OpenAiEndpoints::CompleteStreamed(const ReplyIdentity& identity,
                                       std::unique_ptr<engine::Reply> reply,
                                       GenerationGate::Pass pass,
                                       const Request& request,
                                       Response& response) {
  std::optional<engine::ReplyEvent> first;
  const auto begun = std::chrono::steady_clock::now();
  while (!first &&
         std::chrono::steady_clock::now() - begun < kFirstEventGrace) {
    first = reply->Next(SseReply::kPoll);
    if (!first && (service_->cut_off() || request.is_connection_closed())) {
      SetError(response, StoppingError());
      return;
    }
  }
  if (first) {
    if (const auto* failed = std::get_if<engine::FailedEvent>(&*first)) {
      const ApiError error = ReplyFailureError(failed->status);
      service_->logger().error("{}: {}", identity.id, error.message);
      SetError(response, error);
      return;
    }
  }
  // The library copies the provider, so what it owns is shared.
  struct Stream {
    GenerationGate::Pass pass;  // outlives the reply
    std::unique_ptr<SseReply> reply;
  };
  auto stream = std::make_shared<Stream>(
      Stream{std::move(pass),
             std::make_unique<SseReply>(identity, std::move(reply),
                                        std::move(first), &service_->clock())});
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

ReplyIdentity OpenAiEndpoints::NewIdentity(CompletionKind kind,
                                           bool include_usage) {
  ReplyIdentity identity;
  identity.kind = kind;
  identity.id =
      service_->NewId(kind == CompletionKind::kChat ? "chatcmpl-" : "cmpl-");
  identity.model = service_->model_id();
  identity.created = service_->Now();
  identity.include_usage = include_usage;
  return identity;
}

}  // namespace everwarm::server
