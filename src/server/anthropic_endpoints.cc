#include "server/anthropic_endpoints.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "server/anthropic_form.h"
#include "server/anthropic_request.h"
#include "server/reply_preparation.h"

namespace everwarm::server {

Routes AnthropicEndpoints::routes() {
  return {
      {"POST", "/v1/messages",
       [this](const httplib::Request& request, httplib::Response& response) {
         AnswerWithReply(
             *service_, [&] { return Messages(request.body); }, request,
             response);
       }},
      {"POST", "/v1/messages/count_tokens",
       [this](const httplib::Request& request, httplib::Response& response) {
         CountTokens(request, response);
       }}};
}

absl::StatusOr<ReplyJob> AnthropicEndpoints::Messages(const std::string& text) {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(const MessagesRequest messages,
                      ParseMessagesRequest(body, /*only_count=*/false));
  EW_ASSIGN_OR_RETURN(
      PreparedReplies prepared,
      PrepareChat(*service_, messages.prompt, messages.options));
  AnthropicForm::Setup setup;
  setup.id = service_->NewId("msg_");
  setup.model = service_->model_id();
  setup.prompt_tokens =
      static_cast<uint32_t>(prepared.requests.front().prompt.size());
  setup.marks_cache = messages.marks_cache;
  setup.stop_sequences = messages.options.stops;
  setup.syntax = std::move(prepared.syntax);
  setup.new_call_id = [service = service_] { return service->NewId("toolu_"); };
  ReplyJob job;
  job.requests = std::move(prepared.requests);
  job.form = std::make_unique<AnthropicForm>(std::move(setup));
  job.stream = messages.options.stream;
  return job;
}

void AnthropicEndpoints::CountTokens(const httplib::Request& request,
                                     httplib::Response& response) {
  const auto count = [&]() -> absl::StatusOr<size_t> {
    EW_ASSIGN_OR_RETURN(const GenerationGate::Pass pass, service_->Enter());
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(const MessagesRequest messages,
                        ParseMessagesRequest(body, /*only_count=*/true));
    return CountPromptTokens(*service_, messages.prompt);
  }();
  if (!count.ok()) {
    SetError(request, response, RefusalError(count.status()));
    return;
  }
  SetJson(response, 200, Json::object({{"input_tokens", *count}}));
}

}  // namespace everwarm::server
