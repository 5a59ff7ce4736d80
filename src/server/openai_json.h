// What replies of OpenAI's chat and completions have in common.
//
// Beside the standard fields, usage carries "everwarm": where the cached tokens
// came from and where the time went.
//
// Threads: pure, any.
#ifndef EVERWARM_SERVER_OPENAI_JSON_H_
#define EVERWARM_SERVER_OPENAI_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/json_text.h"
#include "server/text_front.h"

namespace everwarm::server {

// What all JSON of one request's replies has in common.
struct ReplyIdentity {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// {"id", "object", "created", "model"}.
Json ReplyEnvelope(const ReplyIdentity& identity, const char* object);

// Of all choices, in their order; each prompt is counted with the first of its
// `choices_per_prompt`, because the others share its blocks. Durable tokens are
// those of the choice that has fewest.
engine::Usage SumUsage(const std::vector<engine::Usage>& choices,
                       size_t choices_per_prompt);

// "everwarm" of a usage.
Json CacheUsageJson(const engine::Usage& usage);
Json UsageJson(const engine::Usage& usage);

// {"token", "logprob", "bytes", "top_logprobs"} for each.
Json ChatLogprobs(const std::vector<engine::ChosenToken>& tokens,
                  const TextFront& text_front);

Json ModelList(std::string_view model_id, int64_t created,
               const models::ModelInfo& info, uint32_t context_size);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_JSON_H_
