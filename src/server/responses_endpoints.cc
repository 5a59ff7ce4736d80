#include "server/responses_endpoints.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/chat_messages.h"
#include "server/reply_preparation.h"
#include "server/responses_form.h"
#include "server/responses_request.h"

namespace everwarm::server {
namespace {

using models::ChatMessage;
using Messages = ResponseStore::Messages;

// The conversation so far with what is new.
absl::StatusOr<Messages> Conversation(ResponseStore& store,
                                      const ResponsesRequest& request) {
  const Messages& input = request.prompt.messages;
  if (request.previous_response_id.empty()) {
    return input;
  }
  std::optional<Messages> messages =
      store.Find(request.previous_response_id, request.options.name_space);
  if (!messages) {
    return InvalidRequest(
        absl::StrCat("there is no response '", request.previous_response_id,
                     "' here, or not any more"),
        "previous_response_id", "previous_response_not_found");
  }
  messages->insert(messages->end(), input.begin(), input.end());
  NameToolResults(*messages);
  return *std::move(messages);
}

ChatMessage ReplyMessage(const models::ParsedReply& reply) {
  ChatMessage message{"assistant", reply.content};
  message.reasoning = reply.reasoning;
  for (const models::ToolCall& call : reply.tool_calls) {
    // One that was cut off is none.
    if (CheckToolCall(call, "output").ok()) {
      message.tool_calls.push_back(call);
    }
  }
  return message;
}

}  // namespace

Routes ResponsesEndpoints::routes() {
  return {
      {"POST", "/v1/responses",
       [this](const httplib::Request& request, httplib::Response& response) {
         AnswerWithReply(
             *service_, [&] { return Respond(request.body); }, request,
             response);
       }}};
}

absl::StatusOr<ReplyJob> ResponsesEndpoints::Respond(const std::string& text) {
  EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(text));
  EW_ASSIGN_OR_RETURN(ResponsesRequest request, ParseResponsesRequest(body));
  EW_ASSIGN_OR_RETURN(Messages conversation, Conversation(*store_, request));
  models::ChatPrompt& prompt = request.prompt;
  prompt.messages = conversation;
  if (!request.instructions.empty()) {
    prompt.messages.insert(prompt.messages.begin(),
                           {"system", request.instructions});
  }
  EW_ASSIGN_OR_RETURN(PreparedReplies prepared,
                      PrepareChat(*service_, prompt, request.options));
  ResponsesForm::Setup setup;
  setup.identity = {service_->NewId("resp_"), service_->model_id(),
                    service_->Now()};
  setup.echo = std::move(request.echo);
  setup.syntax = std::move(prepared.syntax);
  setup.new_id = [service = service_](const char* prefix) {
    return service->NewId(prefix);
  };
  if (request.store) {
    setup.on_complete = [store = store_, id = setup.identity.id,
                         name_space = request.options.name_space,
                         conversation = std::move(conversation)](
                            const models::ParsedReply& reply) {
      Messages messages = conversation;
      messages.push_back(ReplyMessage(reply));
      store->Put(id, name_space, std::move(messages));
    };
  }
  ReplyJob job;
  job.requests = std::move(prepared.requests);
  job.form = std::make_unique<ResponsesForm>(std::move(setup));
  job.stream = request.options.stream;
  return job;
}

}  // namespace everwarm::server
