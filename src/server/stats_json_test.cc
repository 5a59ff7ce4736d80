#include "server/stats_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace everwarm::server {
namespace {

using std::chrono::milliseconds;

engine::FlushOutcome GoodFlush() {
  engine::FlushOutcome outcome;
  outcome.report.flushed = 4;
  outcome.report.entries = 9;
  outcome.report.longest_durable_prefix = 600;
  outcome.elapsed = milliseconds(12);
  return outcome;
}

TEST(StatsJsonTest, AFlushSucceedsOnlyWhenNothingIsLeftOrLost) {
  EXPECT_TRUE(GoodFlush().succeeded());
  EXPECT_FALSE(FlushJson(GoodFlush()).contains("reason"));
  const auto spoiled = [](auto change) {
    engine::FlushOutcome outcome = GoodFlush();
    change(outcome);
    EXPECT_FALSE(outcome.succeeded());
    const Json json = FlushJson(outcome);
    EXPECT_EQ(json["durable"], false);
    return json["reason"].get<std::string>();
  };
  std::vector<std::string> reasons = {
      spoiled([](auto& o) { o.report.pending = 1; }),
      spoiled([](auto& o) { o.report.failed = 1; }),
      spoiled([](auto& o) { o.report.dropped = 1; }),
      spoiled([](auto& o) { o.report.missing = 1; }),
      spoiled([](auto& o) { o.timed_out = true; }),
      spoiled([](auto& o) { o.report.no_tier = true; })};
  std::sort(reasons.begin(), reasons.end());
  EXPECT_EQ(std::unique(reasons.begin(), reasons.end()), reasons.end());
}

TEST(StatsJsonTest, AFlushShowsItsEvidence) {
  EXPECT_EQ(FlushJson(GoodFlush()), Json::parse(R"({
    "durable":true,"pending":0,"pending_bytes":0,"failed":0,"dropped":0,
    "flushed":4,"missing":0,"elapsed_ms":12,"entries":9,
    "longest_durable_prefix_tokens":600,"timed_out":false})"));
}

TEST(StatsJsonTest, EveryCounterIsShownInItsGroup) {
  engine::EngineStats stats;
  stats.kv.bytes_per_token = 23040;
  stats.kv.first_tokens = 64;
  stats.kv.bytes_per_first_token = 46080;
  stats.kv.state_bytes = 11;
  stats.cache.cached_blocks_in_ram = 14;
  stats.cache.cached_states_in_ram = 2;
  stats.cache.published_states = 13;
  stats.requests = 1;
  stats.waiting = 2;
  stats.prompt_tokens = 3;
  stats.cache.ram_used_bytes = 4;
  stats.cache.groups = {{"full", 3}, {"window-512", 1}};
  stats.cache.tokens_from_tier = 5;
  stats.cache.longest_durable_prefix = 6;
  stats.cache.durable_tokens = 66;
  stats.tier.enabled = true;
  stats.tier.bytes = 7;
  stats.tier.damaged = 8;
  models::ModelInfo model;
  model.architecture = "llama";
  const Json json = StatsJson({.model_id = "m",
                               .model = model,
                               .context_size = 4096,
                               .engine = stats,
                               .uptime = std::chrono::seconds(9),
                               .open_requests = 10});
  EXPECT_EQ(json["model"]["id"], "m");
  EXPECT_EQ(json["model"]["architecture"], "llama");
  EXPECT_EQ(json["model"]["context_tokens"], 4096);
  EXPECT_EQ(json["model"]["kv_bytes_per_token"], 23040);
  EXPECT_EQ(json["model"]["first_tokens"], 64);
  EXPECT_EQ(json["model"]["kv_bytes_per_first_token"], 46080);
  EXPECT_EQ(json["model"]["state_bytes"], 11);
  EXPECT_EQ(json["ram_cache"]["cached_blocks"], 12);
  EXPECT_EQ(json["ram_cache"]["cached_states"], 2);
  EXPECT_EQ(json["ram_cache"]["published_states"], 13);
  EXPECT_EQ(json["requests"]["accepted"], 1);
  EXPECT_EQ(json["requests"]["waiting"], 2);
  EXPECT_EQ(json["requests"]["open"], 10);
  EXPECT_EQ(json["tokens"]["prompt"], 3);
  EXPECT_EQ(json["ram_cache"]["used_bytes"], 4);
  EXPECT_EQ(json["ram_cache"]["groups"], Json::parse(R"([
    {"name":"full","used_bytes":3},{"name":"window-512","used_bytes":1}])"));
  EXPECT_EQ(json["cache"]["tokens_from_ssd"], 5);
  EXPECT_EQ(json["cache"]["longest_durable_prefix_tokens"], 6);
  EXPECT_EQ(json["cache"]["durable_tokens"], 66);
  EXPECT_EQ(json["ssd_cache"]["enabled"], true);
  EXPECT_EQ(json["ssd_cache"]["bytes"], 7);
  EXPECT_EQ(json["ssd_cache"]["damaged"], 8);
  EXPECT_EQ(json["uptime_s"], 9);
}

}  // namespace
}  // namespace everwarm::server
