#include "server/openai_chat_form.h"

#include <utility>

#include "server/sse.h"

namespace everwarm::server {
namespace {

const char* ReasonWord(engine::FinishReason reason,
                       const models::ParsedReply& reply) {
  if (reason != engine::FinishReason::kStop) {
    return "length";
  }
  return reply.tool_calls.empty() ? "stop" : "tool_calls";
}

Json Message(const models::ParsedReply& reply) {
  Json message = {{"role", "assistant"}};
  if (reply.content.empty() && !reply.tool_calls.empty()) {
    message["content"] = nullptr;
  } else {
    message["content"] = reply.content;
  }
  message["refusal"] = nullptr;
  if (!reply.reasoning.empty()) {
    message["reasoning_content"] = reply.reasoning;
  }
  for (const models::ToolCall& call : reply.tool_calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

Json CallDelta(const ReplyDelta::Call& call) {
  Json json = {{"index", call.index}};
  Json function = Json::object();
  if (!call.name.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    function["name"] = call.name;
  }
  function["arguments"] = call.arguments;
  json["function"] = std::move(function);
  return json;
}

}  // namespace

OpenAiChatForm::OpenAiChatForm(Setup setup)
    : setup_(std::move(setup)),
      tokens_(setup_.choices),
      usages_(setup_.choices) {
  for (size_t i = 0; i < setup_.choices; ++i) {
    readers_.emplace_back(setup_.syntax, setup_.new_call_id);
  }
}

Json OpenAiChatForm::Whole(std::vector<WholeChoice> choices) {
  Json reply = ReplyEnvelope(setup_.identity, "chat.completion");
  reply["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    const models::ParsedReply& read = readers_[i].ReadWhole(choice.text);
    Json logprobs = nullptr;
    if (setup_.logprobs) {
      logprobs = {{"content", ChatLogprobs(choice.tokens, *setup_.text_front)},
                  {"refusal", nullptr}};
    }
    reply["choices"].push_back(
        {{"index", i},
         {"message", Message(read)},
         {"logprobs", std::move(logprobs)},
         {"finish_reason", ReasonWord(choice.finished.reason, read)}});
    usages_[i] = choice.finished.usage;
  }
  reply["usage"] = UsageJson(SumUsage(usages_, usages_.size()));
  return reply;
}

std::string OpenAiChatForm::Begin() {
  std::string bytes;
  for (size_t i = 0; i < setup_.choices; ++i) {
    bytes += Choice(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
  }
  return bytes;
}

std::string OpenAiChatForm::Text(size_t choice, const engine::TextEvent& text) {
  tokens_[choice].insert(tokens_[choice].end(), text.tokens.begin(),
                         text.tokens.end());
  return Deltas(choice, readers_[choice].Add(text.text));
}

std::string OpenAiChatForm::Finish(size_t choice,
                                   const engine::FinishedEvent& finished) {
  usages_[choice] = finished.usage;
  ReplyReader& reader = readers_[choice];
  std::string bytes = Deltas(choice, reader.Finish());
  return bytes + Choice(choice, Json::object(),
                        ReasonWord(finished.reason, reader.reply()));
}

std::string OpenAiChatForm::End() {
  std::string bytes;
  if (setup_.include_usage) {
    bytes = Chunk(Json::array(), UsageJson(SumUsage(usages_, usages_.size())));
  }
  return bytes + SseData("[DONE]");
}

std::string OpenAiChatForm::Fail(const ApiError& error) {
  return SseData(ErrorBody(error));
}

std::string OpenAiChatForm::Ping() { return SseComment("still computing"); }

std::string OpenAiChatForm::Deltas(size_t choice, const ReplyDelta& delta) {
  std::string bytes;
  if (!delta.reasoning.empty()) {
    bytes += Choice(choice, {{"reasoning_content", delta.reasoning}}, nullptr);
  }
  if (!delta.content.empty()) {
    bytes += Choice(choice, {{"content", delta.content}}, nullptr);
  }
  for (const ReplyDelta::Call& call : delta.calls) {
    bytes += Choice(choice, {{"tool_calls", Json::array({CallDelta(call)})}},
                    nullptr);
  }
  return bytes;
}

std::string OpenAiChatForm::Choice(size_t choice, Json delta, Json reason) {
  Json logprobs = nullptr;
  if (setup_.logprobs && !tokens_[choice].empty()) {
    logprobs = {{"content", ChatLogprobs(std::exchange(tokens_[choice], {}),
                                         *setup_.text_front)},
                {"refusal", nullptr}};
  }
  return Chunk(Json::array({{{"index", choice},
                             {"delta", std::move(delta)},
                             {"logprobs", std::move(logprobs)},
                             {"finish_reason", std::move(reason)}}}));
}

std::string OpenAiChatForm::Chunk(Json choices, Json usage) const {
  Json chunk = ReplyEnvelope(setup_.identity, "chat.completion.chunk");
  chunk["choices"] = std::move(choices);
  if (setup_.include_usage) {
    chunk["usage"] = std::move(usage);
  }
  return SseData(DumpJson(chunk));
}

}  // namespace everwarm::server
