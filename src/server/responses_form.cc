#include "server/responses_form.h"

#include <utility>

#include "server/sse.h"

namespace everwarm::server {
namespace {

constexpr char kInProgress[] = "in_progress";
constexpr char kCompleted[] = "completed";
constexpr char kIncomplete[] = "incomplete";

Json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ReasoningPart(const std::string& text) {
  return Json::object({{"type", "reasoning_text"}, {"text", text}});
}

Json MessageItem(const std::string& id, const char* status) {
  return {{"type", "message"},
          {"id", id},
          {"status", status},
          {"role", "assistant"},
          {"content", Json::array()}};
}

Json ReasoningItem(const std::string& id, const char* status) {
  return {{"type", "reasoning"},
          {"id", id},
          {"status", status},
          {"summary", Json::array()},
          {"content", Json::array()}};
}

Json CallItem(const std::string& id, const models::ToolCall& call,
              const char* status) {
  return {{"type", "function_call"},     {"id", id},
          {"call_id", call.id},          {"name", call.name},
          {"arguments", call.arguments}, {"status", status}};
}

Json ResponsesUsage(const engine::Usage& usage) {
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details",
       Json::object({{"cached_tokens", usage.reuse.cached}})},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", Json::object({{"reasoning_tokens", 0}})},
      {"total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens},
      {"everwarm", CacheUsageJson(usage)}};
}

}  // namespace

ResponsesForm::ResponsesForm(Setup setup)
    : setup_(std::move(setup)),
      reader_(setup_.syntax,
              [new_id = setup_.new_id] { return new_id("call_"); }) {}

Json ResponsesForm::Response(const char* status) const {
  Json response = {{"id", setup_.identity.id},
                   {"object", "response"},
                   {"created_at", setup_.identity.created},
                   {"status", status},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", setup_.identity.model},
                   {"output", output_},
                   {"usage", nullptr}};
  response.update(setup_.echo);
  return response;
}

Json ResponsesForm::Ended(const engine::FinishedEvent& finished) {
  const bool cut = finished.reason == engine::FinishReason::kLength;
  Json response = Response(cut ? kIncomplete : kCompleted);
  if (cut) {
    response["incomplete_details"] =
        Json::object({{"reason", "max_output_tokens"}});
  }
  response["usage"] = ResponsesUsage(finished.usage);
  if (setup_.on_complete) {
    setup_.on_complete(reader_.reply());
  }
  return response;
}

Json ResponsesForm::Whole(std::vector<WholeChoice> choices) {
  const WholeChoice& choice = choices.front();
  const models::ParsedReply& reply = reader_.ReadWhole(choice.text);
  const char* status = choice.finished.reason == engine::FinishReason::kLength
                           ? kIncomplete
                           : kCompleted;
  if (!reply.reasoning.empty()) {
    Json item = ReasoningItem(setup_.new_id("rs_"), status);
    item["content"].push_back(ReasoningPart(reply.reasoning));
    output_.push_back(std::move(item));
  }
  if (!reply.content.empty() || reply.tool_calls.empty()) {
    Json item = MessageItem(setup_.new_id("msg_"), status);
    item["content"].push_back(TextPart(reply.content));
    output_.push_back(std::move(item));
  }
  for (const models::ToolCall& call : reply.tool_calls) {
    output_.push_back(CallItem(setup_.new_id("fc_"), call, status));
  }
  return Ended(choice.finished);
}

std::string ResponsesForm::Begin() {
  std::string bytes = Event(
      "response.created", Json::object({{"response", Response(kInProgress)}}));
  return bytes + Event("response.in_progress",
                       Json::object({{"response", Response(kInProgress)}}));
}

std::string ResponsesForm::Text(size_t, const engine::TextEvent& text) {
  return Deltas(reader_.Add(text.text));
}

std::string ResponsesForm::Finish(size_t,
                                  const engine::FinishedEvent& finished) {
  std::string bytes = Deltas(reader_.Finish());
  if (output_.empty() && !open_) {
    bytes +=
        Open(Kind::kMessage, MessageItem(setup_.new_id("msg_"), kInProgress));
  }
  bytes += Close(finished.reason == engine::FinishReason::kLength ? kIncomplete
                                                                  : kCompleted);
  ended_ = Ended(finished);
  return bytes;
}

std::string ResponsesForm::End() {
  const bool cut = ended_["status"] == kIncomplete;
  return Event(cut ? "response.incomplete" : "response.completed",
               Json::object({{"response", std::move(ended_)}}));
}

std::string ResponsesForm::Fail(const ApiError& error) {
  Json response = Response("failed");
  response["error"] = {{"code", "server_error"}, {"message", error.message}};
  return Event("response.failed",
               Json::object({{"response", std::move(response)}}));
}

std::string ResponsesForm::Ping() { return SseComment("still computing"); }

std::string ResponsesForm::Deltas(const ReplyDelta& delta) {
  std::string bytes;
  if (!delta.reasoning.empty()) {
    bytes += AddText(Kind::kReasoning, delta.reasoning);
  }
  if (!delta.content.empty()) {
    bytes += AddText(Kind::kMessage, delta.content);
  }
  for (const ReplyDelta::Call& call : delta.calls) {
    if (!call.name.empty()) {
      bytes +=
          Open(Kind::kCall, CallItem(setup_.new_id("fc_"),
                                     {call.id, call.name, ""}, kInProgress));
    }
    if (!call.arguments.empty()) {
      open_->text += call.arguments;
      bytes += ItemEvent("response.function_call_arguments.delta",
                         Json::object({{"delta", call.arguments}}));
    }
  }
  return bytes;
}

std::string ResponsesForm::AddText(Kind kind, const std::string& text) {
  const bool reasoning = kind == Kind::kReasoning;
  std::string bytes;
  if (!open_ || open_->kind != kind) {
    bytes = reasoning
                ? Open(kind, ReasoningItem(setup_.new_id("rs_"), kInProgress))
                : Open(kind, MessageItem(setup_.new_id("msg_"), kInProgress));
  }
  open_->text += text;
  Json fields = {{"content_index", 0}, {"delta", text}};
  if (!reasoning) {
    fields["logprobs"] = Json::array();
  }
  return bytes + ItemEvent(reasoning ? "response.reasoning_text.delta"
                                     : "response.output_text.delta",
                           std::move(fields));
}

std::string ResponsesForm::Open(Kind kind, Json item) {
  std::string bytes = Close(kCompleted);
  open_ = OpenItem{kind, std::move(item), ""};
  bytes += Event("response.output_item.added",
                 {{"output_index", output_.size()}, {"item", open_->item}});
  if (kind != Kind::kCall) {
    bytes += ItemEvent(
        "response.content_part.added",
        {{"content_index", 0},
         {"part", kind == Kind::kMessage ? TextPart("") : ReasoningPart("")}});
  }
  return bytes;
}

std::string ResponsesForm::Close(const char* status) {
  if (!open_) {
    return std::string();
  }
  std::string bytes;
  if (open_->kind == Kind::kCall) {
    open_->item["arguments"] = open_->text;
    bytes +=
        ItemEvent("response.function_call_arguments.done",
                  {{"name", open_->item["name"]}, {"arguments", open_->text}});
  } else {
    const bool message = open_->kind == Kind::kMessage;
    Json part = message ? TextPart(open_->text) : ReasoningPart(open_->text);
    Json fields = {{"content_index", 0}, {"text", open_->text}};
    if (message) {
      fields["logprobs"] = Json::array();
    }
    bytes += ItemEvent(
        message ? "response.output_text.done" : "response.reasoning_text.done",
        std::move(fields));
    bytes += ItemEvent("response.content_part.done",
                       {{"content_index", 0}, {"part", part}});
    open_->item["content"].push_back(std::move(part));
  }
  open_->item["status"] = status;
  bytes += Event("response.output_item.done",
                 {{"output_index", output_.size()}, {"item", open_->item}});
  output_.push_back(std::move(open_->item));
  open_.reset();
  return bytes;
}

std::string ResponsesForm::ItemEvent(const char* type, Json fields) {
  fields["item_id"] = open_->item["id"];
  fields["output_index"] = output_.size();
  return Event(type, std::move(fields));
}

std::string ResponsesForm::Event(const char* type, Json fields) {
  Json event = {{"type", type}, {"sequence_number", next_event_++}};
  event.update(fields);
  return SseEvent(type, event);
}

}  // namespace everwarm::server
