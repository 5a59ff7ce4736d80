#include "server/openai_endpoints.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/status_macros.h"
#include "server/openai_chat_form.h"
#include "server/openai_chat_request.h"
#include "server/openai_completions_form.h"
#include "server/openai_completions_request.h"
#include "server/reply_preparation.h"

namespace everwarm::server {
namespace {

ReplyIdentity NewIdentity(Service& service, const char* prefix) {
  return {service.NewId(prefix), service.model_id(), service.Now()};
}

// What each choice's text begins with.
std::vector<std::string> Echoes(const Service& service,
                                const CompletionRequest& request) {
  std::vector<std::string> echoes;
  for (const CompletionPrompt& prompt : request.prompts) {
    std::string echo;
    if (request.echo) {
      const auto* text = std::get_if<std::string>(&prompt);
      echo = text != nullptr ? *text
                             : service.text_front().Detokenize(
                                   std::get<std::vector<TokenId>>(prompt));
    }
    echoes.insert(echoes.end(), request.options.choices, echo);
  }
  return echoes;
}

}  // namespace

Routes OpenAiEndpoints::routes() {
  return {
      {"POST", "/v1/chat/completions",
       [this](const httplib::Request& request, httplib::Response& response) {
         AnswerWithReply(
             *service_, [&] { return Chat(request.body); }, request, response);
       }},
      {"POST", "/v1/completions",
       [this](const httplib::Request& request, httplib::Response& response) {
         AnswerWithReply(
             *service_, [&] { return Completions(request.body); }, request,
             response);
       }}};
}

absl::StatusOr<ReplyJob> OpenAiEndpoints::Chat(const std::string& text) {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(const ChatRequest chat, ParseChatRequest(body));
  EW_ASSIGN_OR_RETURN(PreparedReplies prepared,
                      PrepareChat(*service_, chat.prompt, chat.options));
  OpenAiChatForm::Setup setup;
  setup.identity = NewIdentity(*service_, "chatcmpl-");
  setup.choices = chat.options.choices;
  setup.include_usage = chat.options.include_usage;
  setup.logprobs = chat.options.top_logprobs.has_value();
  setup.syntax = std::move(prepared.syntax);
  setup.new_call_id = [service = service_] { return service->NewId("call_"); };
  setup.text_front = &service_->text_front();
  ReplyJob job;
  job.requests = std::move(prepared.requests);
  job.form = std::make_unique<OpenAiChatForm>(std::move(setup));
  job.stream = chat.options.stream;
  return job;
}

absl::StatusOr<ReplyJob> OpenAiEndpoints::Completions(const std::string& text) {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(CompletionRequest completion,
                      ParseCompletionRequest(body));
  for (const CompletionPrompt& prompt : completion.prompts) {
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      EW_RETURN_IF_ERROR(service_->CheckTokens(*tokens, "prompt"));
    }
  }
  const GenerationOptions options = completion.options;
  OpenAiCompletionsForm::Setup setup;
  setup.identity = NewIdentity(*service_, "cmpl-");
  setup.beginnings = Echoes(*service_, completion);
  setup.choices_per_prompt = options.choices;
  setup.include_usage = options.include_usage;
  setup.logprobs = options.top_logprobs.has_value();
  setup.text_front = &service_->text_front();
  EW_ASSIGN_OR_RETURN(PreparedReplies prepared,
                      PrepareCompletions(*service_, std::move(completion)));
  ReplyJob job;
  job.requests = std::move(prepared.requests);
  job.form = std::make_unique<OpenAiCompletionsForm>(std::move(setup));
  job.stream = options.stream;
  return job;
}

}  // namespace everwarm::server
