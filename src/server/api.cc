#include "server/api.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/collected_reply.h"
#include "server/sse.h"
#include "server/stats_json.h"

namespace everwarm::server {
namespace {

// What OpenAI generates when a completion does not say how much.
constexpr uint32_t kDefaultCompletionTokens = 16;
// A stream's headers wait so long for its first event, so that what fails at
// once is an HTTP error; after that it is an event of the stream.
constexpr std::chrono::milliseconds kFirstEventGrace{1000};

std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 2; ++i) {
    absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  }
  return hex;
}

int64_t UnixSeconds(Clock::Wall time) {
  return std::chrono::duration_cast<std::chrono::seconds>(
             time.time_since_epoch())
      .count();
}

}  // namespace

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

Api::Api(const Server::Config& config, const Clock* clock, Logger logger)
    : clock_(clock),
      logger_(std::move(logger)),
      flush_timeout_(config.flush_timeout),
      started_(clock->Now()),
      created_(UnixSeconds(clock->WallNow())),
      gate_(config.max_open_requests),
      model_id_(config.model_id),
      run_id_(RandomHex()) {}

void Api::SetReady(engine::Engine* engine, const TextFront* text_front) {
  engine_ = engine;
  text_front_ = text_front;
  if (model_id_.empty()) {
    model_id_ = engine->model().name;
  }
  ready_.store(true, std::memory_order_release);
}

void Api::Health(const Request&, Response& response) {
  const char* status = "ok";
  if (gate_.closed()) {
    status = "stopping";
  } else if (!ready()) {
    status = "loading";
  }
  SetJson(response, std::string_view(status) == "ok" ? 200 : 503,
          {{"status", status}});
}

void Api::Models(const Request&, Response& response) {
  SetJson(response, 200,
          ModelList(model_id_, created_, engine_->model(),
                    engine_->context_size()));
}

void Api::Model(const Request& request, Response& response) {
  const Json list =
      ModelList(model_id_, created_, engine_->model(), engine_->context_size());
  if (request.path_params.at("id") != model_id_) {
    ApiError error = HttpError(404, "no such model here");
    error.code = "model_not_found";
    SetError(response, error);
    return;
  }
  SetJson(response, 200, list["data"][0]);
}

void Api::ChatCompletions(const Request& request, Response& response) {
  Complete(CompletionKind::kChat, PrepareChat(request.body), request, response);
}

void Api::Completions(const Request& request, Response& response) {
  Complete(CompletionKind::kText, PrepareText(request.body), request, response);
}

void Api::Tokenize(const Request& request, Response& response) {
  const auto tokens = [&]() -> absl::StatusOr<std::vector<TokenId>> {
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(const TokenizeRequest parsed,
                        ParseTokenizeRequest(body));
    return text_front_->Tokenize(parsed.content,
                                 {.add_special = parsed.add_special,
                                  .parse_special = parsed.parse_special});
  }();
  if (!tokens.ok()) {
    SetError(response, RefusalError(tokens.status()));
    return;
  }
  SetJson(response, 200, {{"tokens", *tokens}});
}

void Api::Detokenize(const Request& request, Response& response) {
  const auto text = [&]() -> absl::StatusOr<std::string> {
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                        ParseDetokenizeRequest(body));
    EW_RETURN_IF_ERROR(CheckTokens(tokens, "tokens"));
    return text_front_->Detokenize(tokens);
  }();
  if (!text.ok()) {
    SetError(response, RefusalError(text.status()));
    return;
  }
  SetJson(response, 200, {{"content", *text}});
}

void Api::Stats(const Request&, Response& response) {
  const engine::EngineStats stats = engine_->stats();
  const StatsInput input = {
      .model_id = model_id_,
      .model = engine_->model(),
      .context_size = engine_->context_size(),
      .engine = stats,
      .uptime = std::chrono::duration_cast<std::chrono::seconds>(clock_->Now() -
                                                                 started_),
      .open_requests = gate_.open()};
  SetJson(response, 200, StatsJson(input));
}

void Api::Flush(const Request&, Response& response) {
  const std::optional<GenerationGate::Pass> pass = gate_.Enter();
  if (!pass) {
    SetError(response, gate_.closed()
                           ? StoppingError()
                           : RefusalError(absl::ResourceExhaustedError(
                                 "too many requests are open")));
    return;
  }
  const engine::FlushOutcome outcome = engine_->Flush(flush_timeout_);
  SetJson(response, FlushSucceeded(outcome) ? 200 : 503, FlushJson(outcome));
}

absl::StatusOr<Api::Prepared> Api::PrepareChat(const std::string& text) const {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(ChatRequest chat, ParseChatRequest(body));
  EW_ASSIGN_OR_RETURN(models::RenderedPrompt rendered,
                      text_front_->RenderChat(chat.messages));
  EW_ASSIGN_OR_RETURN(
      std::vector<TokenId> prompt,
      text_front_->Tokenize(rendered.text, {.add_special = rendered.add_special,
                                            .parse_special = true}));
  for (std::string& stop : rendered.stops) {
    chat.options.stops.push_back(std::move(stop));
  }
  return Prepare(std::move(prompt), std::move(chat.options),
                 std::numeric_limits<uint32_t>::max());
}

absl::StatusOr<Api::Prepared> Api::PrepareText(const std::string& text) const {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(CompletionRequest completion,
                      ParseCompletionRequest(body));
  std::vector<TokenId> prompt;
  if (const auto* words = std::get_if<std::string>(&completion.prompt)) {
    EW_ASSIGN_OR_RETURN(prompt, text_front_->Tokenize(*words, {}));
  } else {
    prompt = std::get<std::vector<TokenId>>(std::move(completion.prompt));
    EW_RETURN_IF_ERROR(CheckTokens(prompt, "prompt"));
  }
  return Prepare(std::move(prompt), std::move(completion.options),
                 kDefaultCompletionTokens);
}

absl::StatusOr<Api::Prepared> Api::Prepare(std::vector<TokenId> prompt,
                                           GenerationOptions options,
                                           uint32_t default_max_tokens) const {
  if (prompt.empty()) {
    return InvalidRequest("the prompt has no tokens", "prompt", "empty_prompt");
  }
  const uint32_t context = engine_->context_size();
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

void Api::Complete(CompletionKind kind, absl::StatusOr<Prepared> prepared,
                   const Request& request, Response& response) {
  if (!prepared.ok()) {
    SetError(response, RefusalError(prepared.status()));
    return;
  }
  std::optional<GenerationGate::Pass> pass = gate_.Enter();
  if (!pass) {
    SetError(response, gate_.closed()
                           ? StoppingError()
                           : RefusalError(absl::ResourceExhaustedError(
                                 "too many requests are open")));
    return;
  }
  absl::StatusOr<std::unique_ptr<engine::Reply>> reply =
      engine_->Submit(std::move(prepared->request));
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

void Api::CompleteWhole(const ReplyIdentity& identity, engine::Reply& reply,
                        const Request& request, Response& response) {
  const auto outcome = CollectReply(
      reply, [&] { return cut_off_.load() || request.is_connection_closed(); });
  if (const auto* whole = std::get_if<CollectedReply>(&outcome)) {
    SetJson(response, 200, WholeReply(identity, whole->text, whole->finished));
  } else if (const auto* error = std::get_if<ApiError>(&outcome)) {
    logger_->error("{}: {}", identity.id, error->message);
    SetError(response, *error);
  } else {
    // Nobody reads this, unless it was us who cut it off.
    SetError(response, StoppingError());
  }
}

void Api::CompleteStreamed(const ReplyIdentity& identity,
                           std::unique_ptr<engine::Reply> reply,
                           GenerationGate::Pass pass, const Request& request,
                           Response& response) {
  std::optional<engine::ReplyEvent> first;
  const auto begun = std::chrono::steady_clock::now();
  while (!first &&
         std::chrono::steady_clock::now() - begun < kFirstEventGrace) {
    first = reply->Next(SseReply::kPoll);
    if (!first && (cut_off_.load() || request.is_connection_closed())) {
      SetError(response, StoppingError());
      return;
    }
  }
  if (first) {
    if (const auto* failed = std::get_if<engine::FailedEvent>(&*first)) {
      const ApiError error = ReplyFailureError(failed->status);
      logger_->error("{}: {}", identity.id, error.message);
      SetError(response, error);
      return;
    }
  }
  // The library copies the provider, so what it owns is shared.
  struct Stream {
    GenerationGate::Pass pass;  // outlives the reply
    std::unique_ptr<SseReply> reply;
  };
  auto stream = std::make_shared<Stream>(Stream{
      std::move(pass), std::make_unique<SseReply>(identity, std::move(reply),
                                                  std::move(first), clock_)});
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

ReplyIdentity Api::NewIdentity(CompletionKind kind, bool include_usage) {
  ReplyIdentity identity;
  identity.kind = kind;
  identity.id =
      absl::StrCat(kind == CompletionKind::kChat ? "chatcmpl-" : "cmpl-",
                   run_id_, "-", next_reply_.fetch_add(1));
  identity.model = model_id_;
  identity.created = UnixSeconds(clock_->WallNow());
  identity.include_usage = include_usage;
  return identity;
}

absl::Status Api::CheckTokens(const std::vector<TokenId>& tokens,
                              const char* field) const {
  for (const TokenId token : tokens) {
    if (static_cast<uint32_t>(token) >= text_front_->vocab_size()) {
      return InvalidRequest(absl::StrCat("'", field, "' has the token ", token,
                                         ", and the vocabulary ends before ",
                                         text_front_->vocab_size()),
                            field);
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::server
