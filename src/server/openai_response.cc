#include "server/openai_response.h"

#include <chrono>

namespace everwarm::server {
namespace {

bool IsChat(const ReplyIdentity& identity) {
  return identity.kind == CompletionKind::kChat;
}

const char* ReasonWord(engine::FinishReason reason) {
  return reason == engine::FinishReason::kStop ? "stop" : "length";
}

double Milliseconds(std::chrono::nanoseconds time) {
  // Three decimals: microseconds are what the clock is good for.
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::microseconds>(time)
                 .count()) /
         1000.0;
}

Json Envelope(const ReplyIdentity& identity, const char* object) {
  return {{"id", identity.id},
          {"object", object},
          {"created", identity.created},
          {"model", identity.model}};
}

Json Chunk(const ReplyIdentity& identity, Json choices) {
  Json chunk = Envelope(
      identity, IsChat(identity) ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = std::move(choices);
  if (identity.include_usage) {
    chunk["usage"] = nullptr;
  }
  return chunk;
}

Json ChatDelta(Json delta, Json reason) {
  return Json::array({{{"index", 0},
                       {"delta", std::move(delta)},
                       {"logprobs", nullptr},
                       {"finish_reason", std::move(reason)}}});
}

Json TextChoice(std::string_view text, Json reason) {
  return Json::array({{{"index", 0},
                       {"text", text},
                       {"logprobs", nullptr},
                       {"finish_reason", std::move(reason)}}});
}

}  // namespace

Json UsageJson(const engine::Usage& usage) {
  return {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.reuse.cached}}},
      {"everwarm",
       {{"cached_from_ram", usage.reuse.ram},
        {"cached_from_ssd", usage.reuse.tier},
        {"matched_tokens", usage.reuse.matched},
        {"durable_tokens", usage.durable_tokens},
        {"queued_ms", Milliseconds(usage.queued)},
        {"restore_ms", Milliseconds(usage.restore)},
        {"prefill_ms", Milliseconds(usage.prefill)},
        {"decode_ms", Milliseconds(usage.decode)}}}};
}

Json WholeReply(const ReplyIdentity& identity, std::string_view text,
                const engine::FinishedEvent& finished) {
  Json reply = Envelope(
      identity, IsChat(identity) ? "chat.completion" : "text_completion");
  const char* reason = ReasonWord(finished.reason);
  if (IsChat(identity)) {
    reply["choices"] = Json::array(
        {{{"index", 0},
          {"message",
           {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}},
          {"logprobs", nullptr},
          {"finish_reason", reason}}});
  } else {
    reply["choices"] = TextChoice(text, reason);
  }
  reply["usage"] = UsageJson(finished.usage);
  return reply;
}

std::optional<Json> OpeningChunk(const ReplyIdentity& identity) {
  if (!IsChat(identity)) {
    return std::nullopt;
  }
  return Chunk(identity,
               ChatDelta({{"role", "assistant"}, {"content", ""}}, nullptr));
}

Json TextChunk(const ReplyIdentity& identity, std::string_view text) {
  return Chunk(identity, IsChat(identity)
                             ? ChatDelta({{"content", text}}, nullptr)
                             : TextChoice(text, nullptr));
}

Json FinishChunk(const ReplyIdentity& identity, engine::FinishReason reason) {
  const char* word = ReasonWord(reason);
  return Chunk(identity, IsChat(identity) ? ChatDelta(Json::object(), word)
                                          : TextChoice("", word));
}

Json UsageChunk(const ReplyIdentity& identity, const engine::Usage& usage) {
  Json chunk = Chunk(identity, Json::array());
  chunk["usage"] = UsageJson(usage);
  return chunk;
}

Json ModelList(std::string_view model_id, int64_t created,
               const models::ModelInfo& info, uint32_t context_size) {
  return {{"object", "list"},
          {"data", Json::array({{{"id", model_id},
                                 {"object", "model"},
                                 {"created", created},
                                 {"owned_by", "everwarm"},
                                 {"meta",
                                  {{"architecture", info.architecture},
                                   {"n_ctx", context_size},
                                   {"n_ctx_train", info.train_context},
                                   {"n_vocab", info.vocab_size}}}}})}};
}

}  // namespace everwarm::server
