#include "server/openai_json.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace everwarm::server {
namespace {

double Milliseconds(std::chrono::nanoseconds time) {
  // Three decimals: microseconds are what the clock is good for.
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::microseconds>(time)
                 .count()) /
         1000.0;
}

Json TokenJson(const engine::TokenLogprob& token, const TextFront& text_front) {
  const std::string piece = text_front.Detokenize({&token.token, 1});
  Json bytes = Json::array();
  for (const char byte : piece) {
    bytes.push_back(static_cast<uint8_t>(byte));
  }
  return {{"token", piece}, {"logprob", token.logprob}, {"bytes", bytes}};
}

}  // namespace

Json ReplyEnvelope(const ReplyIdentity& identity, const char* object) {
  return {{"id", identity.id},
          {"object", object},
          {"created", identity.created},
          {"model", identity.model}};
}

engine::Usage SumUsage(const std::vector<engine::Usage>& choices,
                       size_t choices_per_prompt) {
  engine::Usage sum;
  for (size_t i = 0; i < choices.size(); ++i) {
    const engine::Usage& usage = choices[i];
    sum.completion_tokens += usage.completion_tokens;
    sum.durable_tokens =
        i == 0 ? usage.durable_tokens
               : std::min(sum.durable_tokens, usage.durable_tokens);
    sum.queued = std::max(sum.queued, usage.queued);
    sum.restore = std::max(sum.restore, usage.restore);
    sum.prefill = std::max(sum.prefill, usage.prefill);
    sum.decode = std::max(sum.decode, usage.decode);
    if (i % choices_per_prompt == 0) {
      sum.prompt_tokens += usage.prompt_tokens;
      sum.reuse.cached += usage.reuse.cached;
      sum.reuse.ram += usage.reuse.ram;
      sum.reuse.tier += usage.reuse.tier;
      sum.reuse.matched += usage.reuse.matched;
    }
  }
  return sum;
}

Json CacheUsageJson(const engine::Usage& usage) {
  return {{"cached_from_ram", usage.reuse.ram},
          {"cached_from_ssd", usage.reuse.tier},
          {"matched_tokens", usage.reuse.matched},
          {"durable_tokens", usage.durable_tokens},
          {"queued_ms", Milliseconds(usage.queued)},
          {"restore_ms", Milliseconds(usage.restore)},
          {"prefill_ms", Milliseconds(usage.prefill)},
          {"decode_ms", Milliseconds(usage.decode)}};
}

Json UsageJson(const engine::Usage& usage) {
  return {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.reuse.cached}}},
      {"everwarm", CacheUsageJson(usage)}};
}

Json ChatLogprobs(const std::vector<engine::ChosenToken>& tokens,
                  const TextFront& text_front) {
  Json list = Json::array();
  for (const engine::ChosenToken& token : tokens) {
    Json json = TokenJson(token.chosen, text_front);
    json["top_logprobs"] = Json::array();
    for (const engine::TokenLogprob& top : token.top) {
      json["top_logprobs"].push_back(TokenJson(top, text_front));
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json ModelList(std::string_view model_id, int64_t created,
               const models::ModelInfo& info, uint32_t context_size) {
  return {{"object", "list"},
          {"data", Json::array({{{"id", model_id},
                                 {"object", "model"},
                                 {"created", created},
                                 {"owned_by", "everwarm"},
                                 // As vLLM names it; agents plan with it.
                                 {"max_model_len", context_size},
                                 {"meta",
                                  {{"architecture", info.architecture},
                                   {"n_ctx", context_size},
                                   {"n_ctx_train", info.train_context},
                                   {"n_vocab", info.vocab_size}}}}})}};
}

}  // namespace everwarm::server
