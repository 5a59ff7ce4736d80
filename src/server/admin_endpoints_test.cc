// Health, flush, drain, and replies that wait until they are durable.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/server_harness.h"

namespace everwarm::server {
namespace {

using std::chrono::milliseconds;

using AdminEndpointsTest = ServerFixture;

TEST_F(AdminEndpointsTest, AFlushIs200OnlyWhenAllIsDurable) {
  engine::FlushOutcome outcome;
  outcome.report.entries = 3;
  engine_.SetFlushOutcome(outcome);
  Start();
  const Answer good = Post("/admin/cache/flush", "");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.json()["durable"], true);
  EXPECT_EQ(good.json()["entries"], 3);
  outcome.report.failed = 2;
  engine_.SetFlushOutcome(outcome);
  const Answer bad = Post("/admin/cache/flush", "{}");
  EXPECT_EQ(bad.status, 503);
  EXPECT_EQ(bad.json()["durable"], false);
  EXPECT_EQ(bad.json()["failed"], 2);
  outcome = {};
  outcome.report.no_tier = true;
  engine_.SetFlushOutcome(outcome);
  const Answer off = Post("/admin/cache/flush", "");
  EXPECT_EQ(off.status, 503);
  EXPECT_FALSE(off.json()["reason"].get<std::string>().empty());
}

TEST_F(AdminEndpointsTest, ASessionIsClosedByItsId) {
  Start();
  const std::string path = "/admin/cache/session/close";
  EXPECT_EQ(Post(path, R"({"session_id":"agent 7"})").status, 200);
  EXPECT_EQ(engine_.closed_sessions(), std::vector<std::string>({"agent 7"}));
  for (const char* body : {"", "[]", "{}", R"({"session_id":""})",
                           R"({"session_id":7})", R"({"session_id":null})"}) {
    ExpectError(Post(path, body), 400);
  }
  EXPECT_EQ(engine_.closed_sessions().size(), 1u);
  ExpectAlive();
}

TEST_F(AdminEndpointsTest, RequestsNameTheirSessionInTheBodyOrTheHeader) {
  Start();
  Post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(engine_.last_request().session, "");
  Post("/v1/completions", R"({"prompt":"a","session_id":"s"})");
  EXPECT_EQ(engine_.last_request().session, "s");
  Post("/v1/completions", R"({"prompt":"a","prompt_cache_key":"k"})");
  EXPECT_EQ(engine_.last_request().session, "k");
  Post("/v1/completions",
       R"({"prompt":"a","session_id":")" + std::string(1000, 'x') + "\"}");
  EXPECT_EQ(engine_.last_request().session, std::string(256, 'x'));
  ExpectError(Post("/v1/completions", R"({"prompt":"a","session_id":7})"), 400);
}

TEST_F(AdminEndpointsTest, ADrainShowsTheFlushAndWhatLeftRam) {
  engine::DrainOutcome outcome;
  outcome.flush.report.flushed = 3;
  outcome.demoted_blocks = 7;
  outcome.ram_used_bytes = 4096;
  engine_.SetDrainOutcome(outcome);
  Start();
  const Answer good = Post("/admin/drain", "");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.json()["durable"], true);
  EXPECT_EQ(good.json()["flushed"], 3);
  EXPECT_EQ(good.json()["demoted_blocks"], 7);
  EXPECT_EQ(good.json()["ram_used_bytes"], 4096);
  outcome.flush.report.pending = 1;
  outcome.flush.timed_out = true;
  engine_.SetDrainOutcome(outcome);
  const Answer bad = Post("/admin/drain", "");
  EXPECT_EQ(bad.status, 503);
  EXPECT_EQ(bad.json()["demoted_blocks"], 7);
  ExpectError(Get("/admin/drain"), 405);
  ExpectAlive();
}

TEST_F(AdminEndpointsTest, HealthSaysStoppingWhileOpenRepliesGoOn) {
  engine_.SetScript({.pieces = {"a"}, .endless = true});
  Start();
  Answer cut;
  std::thread reader([&] { cut = Chat(); });
  ASSERT_TRUE(engine_.WaitForRequests(1, kPatience));
  server_->BeginStop();
  const Answer health = Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "stopping");
  for (const Answer& refused :
       {Chat(), Chat(R"(,"stream":true)"), Post("/admin/cache/flush", ""),
        Post("/admin/drain", "")}) {
    ExpectError(refused, 503, "stopping");
    EXPECT_TRUE(refused.HasHeader("Retry-After"));
  }
  // The one that runs has not been touched; statistics still answer.
  EXPECT_EQ(Get("/stats").json()["requests"]["open"], 1);
  EXPECT_FALSE(engine_.WaitForCancelled(1, milliseconds(0)));
  server_->Stop(milliseconds(1));
  reader.join();
  ExpectError(cut, 503, "stopping");
}

TEST_F(AdminEndpointsTest, HealthAnswersWhileLongTextsAreTokenized) {
  Mutex mutex;
  CondVar changed;
  int tokenizing = 0;
  bool release = false;
  text_front_.on_tokenize = [&] {
    MutexLock lock(mutex);
    ++tokenizing;
    changed.NotifyAll();
    while (!release) {
      changed.Wait(mutex);
    }
  };
  Server::Config config = AnyPort();
  config.http_threads = 8;
  config.max_open_requests = 4;
  config.max_open_flushes = 2;
  Start(config);
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/completions", R"({"prompt":"hi"})"},
      {"/tokenize", R"({"content":"hi"})"},
      {"/v1/messages",
       R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"}]})"}};
  std::vector<std::thread> clients;
  std::vector<int> statuses(bodies.size());
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] {
      statuses[i] = Post(bodies[i].first, bodies[i].second).status;
    });
  }
  {
    MutexLock lock(mutex);
    while (tokenizing < 4) {
      changed.Wait(mutex);
    }
  }
  EXPECT_EQ(Get("/health").status, 200);
  for (const auto& [path, body] : bodies) {
    EXPECT_EQ(Post(path, body).status, 429) << path;
  }
  // What was published can be made durable all the same.
  EXPECT_EQ(Post("/admin/cache/flush", "").status, 200);
  EXPECT_EQ(Post("/admin/drain", "").status, 200);
  {
    MutexLock lock(mutex);
    release = true;
    changed.NotifyAll();
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(statuses, std::vector<int>(bodies.size(), 200));
}

TEST_F(AdminEndpointsTest, AStopWhileTheModelIsLoadedIsSeenToo) {
  StartLoading();
  server_->BeginStop();
  EXPECT_EQ(Get("/health").json()["status"], "stopping");
}

TEST_F(AdminEndpointsTest, AReplyWaitsUntilItIsDurableWhenTheRequestSaysSo) {
  FakeReplyScript script = {.pieces = {"a"}};
  script.usage.durable_tokens = 17;
  engine_.SetScript(script);
  Server::Config config = AnyPort();
  config.durable_wait = milliseconds(4321);
  Start(config);
  const auto ask = [&](const httplib::Headers& headers, const char* stream) {
    const Answer answer =
        Post("/v1/completions",
             std::string(R"({"prompt":"a","stream":)") + stream +
                 R"(,"stream_options":{"include_usage":true}})",
             headers);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("\"durable_tokens\":17"), std::string::npos)
        << answer.body;
    return engine_.last_request().wait_durable;
  };
  for (const char* stream : {"false", "true"}) {
    EXPECT_EQ(ask({}, stream), milliseconds(0));
    EXPECT_EQ(ask({{"x-everwarm-wait-durable", "1"}}, stream),
              milliseconds(4321));
    EXPECT_EQ(ask({{"X-Everwarm-Wait-Durable", "0"}}, stream), milliseconds(0));
  }
  EXPECT_EQ(Post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"hi"}]})",
                 {{"X-Everwarm-Wait-Durable", "1"}})
                .status,
            200);
  EXPECT_EQ(engine_.last_request().wait_durable, milliseconds(4321));
}

}  // namespace
}  // namespace everwarm::server
