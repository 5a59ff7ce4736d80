#include "server/openai_response.h"

#include <gtest/gtest.h>

#include "server/stats_json.h"

namespace everwarm::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

ReplyIdentity Identity(CompletionKind kind, bool include_usage = false) {
  return {.kind = kind,
          .id = "id-1",
          .model = "m",
          .created = 1767225600,
          .include_usage = include_usage};
}

engine::FinishedEvent Finished(engine::FinishReason reason) {
  engine::Usage usage;
  usage.prompt_tokens = 10;
  usage.completion_tokens = 3;
  usage.reuse = {.cached = 8, .ram = 5, .tier = 3, .matched = 9};
  usage.durable_tokens = 11;
  usage.queued = milliseconds(1);
  usage.restore = microseconds(2500);
  usage.prefill = milliseconds(3);
  usage.decode = milliseconds(4);
  return {reason, usage};
}

TEST(OpenAiResponseTest, AWholeChatReplyHasTheApisForm) {
  const Json reply = WholeReply(Identity(CompletionKind::kChat), "hello",
                                Finished(engine::FinishReason::kStop));
  EXPECT_EQ(reply, Json::parse(R"({
    "id":"id-1","object":"chat.completion","created":1767225600,"model":"m",
    "choices":[{"index":0,"message":{"role":"assistant","content":"hello",
      "refusal":null},"logprobs":null,"finish_reason":"stop"}],
    "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,
      "prompt_tokens_details":{"cached_tokens":8},
      "everwarm":{"cached_from_ram":5,"cached_from_ssd":3,"matched_tokens":9,
        "durable_tokens":11,"queued_ms":1.0,"restore_ms":2.5,"prefill_ms":3.0,"decode_ms":4.0}}})"));
}

TEST(OpenAiResponseTest, AWholeCompletionHasTheApisForm) {
  Json reply = WholeReply(Identity(CompletionKind::kText), "hello",
                          Finished(engine::FinishReason::kLength));
  reply.erase("usage");
  EXPECT_EQ(reply, Json::parse(R"({
    "id":"id-1","object":"text_completion","created":1767225600,"model":"m",
    "choices":[{"index":0,"text":"hello","logprobs":null,
      "finish_reason":"length"}]})"));
}

TEST(OpenAiResponseTest, ChatChunksOpenWithTheRoleAndEndWithTheReason) {
  const ReplyIdentity identity = Identity(CompletionKind::kChat);
  const auto opening = OpeningChunk(identity);
  ASSERT_TRUE(opening.has_value());
  EXPECT_EQ((*opening)["object"], "chat.completion.chunk");
  EXPECT_EQ((*opening)["choices"][0]["delta"],
            Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_TRUE((*opening)["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(TextChunk(identity, "a")["choices"][0]["delta"],
            Json::parse(R"({"content":"a"})"));
  const Json last = FinishChunk(identity, engine::FinishReason::kLength);
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(last.contains("usage"));
}

TEST(OpenAiResponseTest, CompletionChunksHaveNoOpening) {
  const ReplyIdentity identity = Identity(CompletionKind::kText);
  EXPECT_FALSE(OpeningChunk(identity).has_value());
  const Json chunk = TextChunk(identity, "a");
  EXPECT_EQ(chunk["object"], "text_completion");
  EXPECT_EQ(chunk["choices"][0]["text"], "a");
  const Json last = FinishChunk(identity, engine::FinishReason::kStop);
  EXPECT_EQ(last["choices"][0]["text"], "");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
}

TEST(OpenAiResponseTest, UsageIsNullInEveryChunkButTheLastOne) {
  const ReplyIdentity identity = Identity(CompletionKind::kChat, true);
  for (const Json& chunk :
       {*OpeningChunk(identity), TextChunk(identity, "a"),
        FinishChunk(identity, engine::FinishReason::kStop)}) {
    ASSERT_TRUE(chunk.contains("usage"));
    EXPECT_TRUE(chunk["usage"].is_null());
  }
  const Json last =
      UsageChunk(identity, Finished(engine::FinishReason::kStop).usage);
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"]["total_tokens"], 13);
}

TEST(OpenAiResponseTest, TotalsDoNotWrap) {
  engine::Usage usage;
  usage.prompt_tokens = 4'000'000'000u;
  usage.completion_tokens = 4'000'000'000u;
  EXPECT_EQ(UsageJson(usage)["total_tokens"], 8'000'000'000u);
}

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
  stats.kv_bytes_per_token = 23040;
  stats.requests = 1;
  stats.waiting = 2;
  stats.prompt_tokens = 3;
  stats.cache.ram_used_bytes = 4;
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
  EXPECT_EQ(json["requests"]["accepted"], 1);
  EXPECT_EQ(json["requests"]["waiting"], 2);
  EXPECT_EQ(json["requests"]["open"], 10);
  EXPECT_EQ(json["tokens"]["prompt"], 3);
  EXPECT_EQ(json["ram_cache"]["used_bytes"], 4);
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
