#include "server/stats_json.h"

namespace everwarm::server {
namespace {

Json ModelJson(const StatsInput& input) {
  const models::ModelInfo& model = input.model;
  return {{"id", input.model_id},
          {"name", model.name},
          {"architecture", model.architecture},
          {"path", model.path},
          {"layers", model.num_layers},
          {"embedding_dim", model.embedding_dim},
          {"vocab_size", model.vocab_size},
          {"context_tokens", input.context_size},
          {"train_context_tokens", model.train_context},
          {"weight_bytes", model.weight_bytes},
          {"kv_bytes_per_token", input.engine.kv.bytes_per_token},
          {"first_tokens", input.engine.kv.first_tokens},
          {"kv_bytes_per_first_token", input.engine.kv.bytes_per_first_token},
          {"state_bytes", input.engine.kv.state_bytes},
          {"row_independent", model.row_independent}};
}

Json RequestsJson(const StatsInput& input) {
  const engine::EngineStats& stats = input.engine;
  return {{"accepted", stats.requests}, {"finished", stats.finished},
          {"failed", stats.failed},     {"cancelled", stats.cancelled},
          {"waiting", stats.waiting},   {"running", stats.running},
          {"paused", stats.paused},     {"followed", stats.followed},
          {"open", input.open_requests}};
}

Json GroupsJson(const cache::CacheStats& stats) {
  Json groups = Json::array();
  for (const cache::CacheStats::Group& group : stats.groups) {
    groups.push_back(
        {{"name", group.name}, {"used_bytes", group.ram_used_bytes}});
  }
  return groups;
}

Json RamJson(const cache::CacheStats& stats) {
  return {{"used_bytes", stats.ram_used_bytes},
          {"groups", GroupsJson(stats)},
          {"mapped_bytes", stats.ram_mapped_bytes},
          {"target_bytes", stats.ram_target_bytes},
          {"hard_cap_bytes", stats.ram_hard_cap_bytes},
          {"nodes", stats.nodes},
          {"sessions", stats.sessions},
          {"cached_blocks",
           stats.cached_blocks_in_ram - stats.cached_states_in_ram},
          {"cached_states", stats.cached_states_in_ram},
          {"dirty_blocks", stats.dirty_blocks},
          {"demoted_blocks", stats.demoted_blocks},
          {"lost_blocks", stats.lost_blocks},
          {"tail_copies", stats.tail_copies},
          {"state_copies", stats.state_copies},
          {"published_states", stats.published_states},
          {"thinned_states", stats.thinned_states}};
}

Json SsdJson(const cache::TierStats& stats) {
  return {{"enabled", stats.enabled},
          {"entries", stats.entries},
          {"bytes", stats.bytes},
          {"max_bytes", stats.max_bytes},
          {"pending_stores", stats.pending_stores},
          {"pending_store_bytes", stats.pending_store_bytes},
          {"pending_loads", stats.pending_loads},
          {"stored", stats.stored},
          {"stored_bytes", stats.stored_bytes},
          {"failed_stores", stats.failed_stores},
          {"loaded", stats.loaded},
          {"loaded_bytes", stats.loaded_bytes},
          {"failed_loads", stats.failed_loads},
          {"evicted", stats.evicted},
          {"damaged", stats.damaged},
          {"scrubbed", stats.scrubbed},
          {"scrubbed_bytes", stats.scrubbed_bytes},
          {"scrub_failed", stats.scrub_failed}};
}

const char* FailureReason(const engine::FlushOutcome& outcome) {
  const cache::FlushReport& report = outcome.report;
  if (report.no_tier) {
    return "there is no SSD tier: nothing can be made durable";
  }
  if (report.failed > 0) {
    return "blocks could not be written; they stay in RAM and are tried again";
  }
  if (report.dropped > 0) {
    return "blocks left RAM before they were durable";
  }
  if (report.missing > 0) {
    return "published blocks are neither in RAM nor durable";
  }
  if (outcome.timed_out) {
    return "the time ran out; the rest is still being written";
  }
  return "blocks are still being written";
}

}  // namespace

Json StatsJson(const StatsInput& input) {
  const cache::CacheStats& cache = input.engine.cache;
  return {{"uptime_s", input.uptime.count()},
          {"model", ModelJson(input)},
          {"requests", RequestsJson(input)},
          {"tokens",
           {{"prompt", input.engine.prompt_tokens},
            {"computed_prompt", input.engine.computed_prompt_tokens},
            {"generated", input.engine.generated_tokens},
            {"steps", input.engine.steps}}},
          {"cache",
           {{"lookups", cache.takes},
            {"hits", cache.hits},
            {"tokens_asked", cache.tokens_asked},
            {"tokens_from_ram", cache.tokens_from_ram},
            {"tokens_from_ssd", cache.tokens_from_tier},
            {"tokens_preloaded", cache.preloaded_tokens},
            {"requests_without_ssd", cache.takes_given_up},
            {"durable_tokens", cache.durable_tokens},
            {"longest_durable_prefix_tokens", cache.longest_durable_prefix}}},
          {"ram_cache", RamJson(cache)},
          {"ssd_cache", SsdJson(input.engine.tier)}};
}

Json FlushJson(const engine::FlushOutcome& outcome) {
  const cache::FlushReport& report = outcome.report;
  const bool succeeded = outcome.succeeded();
  Json json = {{"durable", succeeded},
               {"pending", report.pending},
               {"pending_bytes", report.pending_bytes},
               {"failed", report.failed},
               {"dropped", report.dropped},
               {"flushed", report.flushed},
               {"missing", report.missing},
               {"elapsed_ms", outcome.elapsed.count()},
               {"entries", report.entries},
               {"longest_durable_prefix_tokens", report.longest_durable_prefix},
               {"timed_out", outcome.timed_out}};
  if (!succeeded) {
    json["reason"] = FailureReason(outcome);
  }
  return json;
}

Json DrainJson(const engine::DrainOutcome& outcome) {
  Json json = FlushJson(outcome.flush);
  json["demoted_blocks"] = outcome.demoted_blocks;
  json["ram_used_bytes"] = outcome.ram_used_bytes;
  return json;
}

}  // namespace everwarm::server
