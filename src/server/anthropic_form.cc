#include "server/anthropic_form.h"

#include <algorithm>
#include <utility>

#include "server/openai_json.h"
#include "server/sse.h"

namespace everwarm::server {
namespace {

// The arguments as an object; what a cut left of one is kept as text.
Json InputOf(const models::ToolCall& call) {
  if (absl::StatusOr<Json> input = ParseJsonObject(call.arguments);
      input.ok()) {
    return *std::move(input);
  }
  Json cut = Json::object();
  if (!call.arguments.empty()) {
    cut["incomplete"] = call.arguments;
  }
  return cut;
}

Json ContentOf(const models::ParsedReply& reply) {
  Json content = Json::array();
  if (!reply.reasoning.empty()) {
    content.push_back({{"type", "thinking"},
                       {"thinking", reply.reasoning},
                       {"signature", ""}});
  }
  if (!reply.content.empty()) {
    content.push_back(
        Json::object({{"type", "text"}, {"text", reply.content}}));
  }
  for (const models::ToolCall& call : reply.tool_calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", call.id},
                       {"name", call.name},
                       {"input", InputOf(call)}});
  }
  return content;
}

}  // namespace

Json AnthropicForm::Message(Json content) const {
  return {{"id", setup_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", setup_.model},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

// Input, written and read tokens are disjoint, and together the prompt.
Json AnthropicForm::Usage(const engine::Usage& usage) const {
  const uint32_t computed = usage.prompt_tokens - usage.reuse.cached;
  return {{"input_tokens", setup_.marks_cache ? 0 : computed},
          {"cache_creation_input_tokens", setup_.marks_cache ? computed : 0},
          {"cache_read_input_tokens", usage.reuse.cached},
          {"output_tokens", usage.completion_tokens},
          {"everwarm", CacheUsageJson(usage)}};
}

Json AnthropicForm::StopReason(const engine::FinishedEvent& finished) const {
  if (finished.reason == engine::FinishReason::kLength) {
    return {{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}};
  }
  const auto& stops = setup_.stop_sequences;
  if (std::find(stops.begin(), stops.end(), finished.stop) != stops.end()) {
    return {{"stop_reason", "stop_sequence"}, {"stop_sequence", finished.stop}};
  }
  const bool calls = !reader_.reply().tool_calls.empty();
  return {{"stop_reason", calls ? "tool_use" : "end_turn"},
          {"stop_sequence", nullptr}};
}

Json AnthropicForm::Whole(std::vector<WholeChoice> choices) {
  const WholeChoice& choice = choices.front();
  Json message = Message(ContentOf(reader_.ReadWhole(choice.text)));
  message.update(StopReason(choice.finished));
  message["usage"] = Usage(choice.finished.usage);
  return message;
}

std::string AnthropicForm::Begin() {
  Json message = Message(Json::array());
  // What is cached shows only when the prompt has been computed; the last
  // event's usage says it.
  message["usage"] = {{"input_tokens", setup_.prompt_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", 0},
                      {"output_tokens", 0}};
  return SseEvent("message_start",
                  {{"type", "message_start"}, {"message", std::move(message)}});
}

std::string AnthropicForm::Text(size_t, const engine::TextEvent& text) {
  return Deltas(reader_.Add(text.text));
}

std::string AnthropicForm::Finish(size_t,
                                  const engine::FinishedEvent& finished) {
  std::string bytes = Deltas(reader_.Finish());
  bytes += Close();
  return bytes + SseEvent("message_delta", {{"type", "message_delta"},
                                            {"delta", StopReason(finished)},
                                            {"usage", Usage(finished.usage)}});
}

std::string AnthropicForm::End() {
  return SseEvent("message_stop", Json::object({{"type", "message_stop"}}));
}

std::string AnthropicForm::Fail(const ApiError& error) {
  return "event: error\n" + SseData(AnthropicErrorBody(error));
}

std::string AnthropicForm::Ping() {
  return SseEvent("ping", Json::object({{"type", "ping"}}));
}

std::string AnthropicForm::Deltas(const ReplyDelta& delta) {
  std::string bytes;
  if (!delta.reasoning.empty()) {
    bytes += Open("thinking",
                  {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    bytes += Delta({{"type", "thinking_delta"}, {"thinking", delta.reasoning}});
  }
  if (!delta.content.empty()) {
    bytes += Open("text", {{"type", "text"}, {"text", ""}});
    bytes += Delta({{"type", "text_delta"}, {"text", delta.content}});
  }
  for (const ReplyDelta::Call& call : delta.calls) {
    if (!call.name.empty()) {
      bytes += Open(call.id, {{"type", "tool_use"},
                              {"id", call.id},
                              {"name", call.name},
                              {"input", Json::object()}});
    }
    if (!call.arguments.empty()) {
      bytes += Delta(
          {{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    }
  }
  return bytes;
}

std::string AnthropicForm::Open(const std::string& kind, Json block) {
  if (kind == open_) {
    return std::string();
  }
  std::string bytes = Close();
  open_ = kind;
  ++block_;
  return bytes +
         SseEvent("content_block_start", {{"type", "content_block_start"},
                                          {"index", block_},
                                          {"content_block", std::move(block)}});
}

std::string AnthropicForm::Close() {
  if (open_.empty()) {
    return std::string();
  }
  open_.clear();
  return SseEvent("content_block_stop",
                  {{"type", "content_block_stop"}, {"index", block_}});
}

std::string AnthropicForm::Delta(Json delta) const {
  return SseEvent("content_block_delta", {{"type", "content_block_delta"},
                                          {"index", block_},
                                          {"delta", std::move(delta)}});
}

}  // namespace everwarm::server
