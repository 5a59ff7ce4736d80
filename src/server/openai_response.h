// Replies in the forms of the OpenAI API.
//
// Beside the standard fields, usage carries "everwarm": where the cached tokens
// came from and where the time went.
//
// Threads: pure, any.
#ifndef EVERWARM_SERVER_OPENAI_RESPONSE_H_
#define EVERWARM_SERVER_OPENAI_RESPONSE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/json_text.h"

namespace everwarm::server {

enum class CompletionKind { kChat, kText };

// What all JSON of one reply has in common.
struct ReplyIdentity {
  CompletionKind kind = CompletionKind::kChat;
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  // Streamed: every chunk has the field "usage", null but for the last one.
  bool include_usage = false;
};

Json UsageJson(const engine::Usage& usage);

// Requires: the reason is not kCancelled, which is an error for the client.
Json WholeReply(const ReplyIdentity& identity, std::string_view text,
                const engine::FinishedEvent& finished);

// The chunks of a streamed reply, in the order in which they are sent.
// Nothing where the form has no opening chunk.
std::optional<Json> OpeningChunk(const ReplyIdentity& identity);
Json TextChunk(const ReplyIdentity& identity, std::string_view text);
Json FinishChunk(const ReplyIdentity& identity, engine::FinishReason reason);
Json UsageChunk(const ReplyIdentity& identity, const engine::Usage& usage);

Json ModelList(std::string_view model_id, int64_t created,
               const models::ModelInfo& info, uint32_t context_size);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_RESPONSE_H_
