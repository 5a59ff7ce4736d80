#include "server/server.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spdlog/sinks/ostream_sink.h"
#include "testing/server_harness.h"

namespace everwarm::server {
namespace {

using ServerTest = ServerFixture;

TEST_F(ServerTest, ItSaysLoadingUntilTheModelIsThere) {
  StartLoading();
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/health").json()["status"], "loading");
  const Answer early = Chat();
  ExpectError(early, 503, "loading");
  EXPECT_TRUE(early.HasHeader("Retry-After"));
  ExpectError(Get("/v1/models"), 503, "loading");
  server_->SetReady(&engine_, &text_front_);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/health").json()["status"], "ok");
  EXPECT_EQ(Chat().status, 200);
}

TEST_F(ServerTest, ABusyPortIsAClearError) {
  Start();
  Server::Config config = AnyPort();
  config.port = server_->port();
  Server second(config, &clock_, NullLogger());
  const absl::Status status = second.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(std::to_string(config.port)),
            absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("in use"), absl::string_view::npos) << status;
  ExpectAlive();
}

TEST_F(ServerTest, ABadHostIsAClearError) {
  // 192.0.2.0/24 is for documentation: no machine has it.
  for (const char* host : {"192.0.2.1", "no such host", "256.0.0.1.x:1"}) {
    Server::Config config = AnyPort();
    config.host = host;
    Server server(config, &clock_, NullLogger());
    const absl::Status status = server.Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(host), absl::string_view::npos) << status;
  }
}

TEST_F(ServerTest, AConfigThatCannotWorkIsRefused) {
  Server::Config config;
  EXPECT_TRUE(config.Validate().ok());
  config.port = 65536;
  EXPECT_FALSE(config.Validate().ok());
  config = {};
  config.host = "";
  EXPECT_FALSE(config.Validate().ok());
  config = {};
  config.max_open_requests = config.http_threads - config.max_open_flushes;
  EXPECT_FALSE(config.Validate().ok());
  --config.max_open_requests;
  EXPECT_TRUE(config.Validate().ok());
  config.max_open_flushes = 0;
  EXPECT_FALSE(config.Validate().ok());
}

TEST_F(ServerTest, AForeignPageWhoseNameWasPointedHereReadsNothing) {
  Start();
  for (const char* host : {"evil.example", "evil.example:8080"}) {
    for (const char* path : {"/v1/chat/completions", "/tokenize",
                             "/admin/drain", "/admin/cache/session/close"}) {
      ExpectError(Post(path, "{}", {{"Host", host}}), 403, "forbidden");
    }
    ExpectError(
        Take(NewClient().Get("/stats", httplib::Headers{{"Host", host}})), 403,
        "forbidden");
    const Answer anthropic = Post("/v1/messages", "{}", {{"Host", host}});
    EXPECT_EQ(anthropic.status, 403);
    EXPECT_EQ(anthropic.json()["error"]["type"], "permission_error");
  }
  EXPECT_TRUE(engine_.requests().empty());
  EXPECT_TRUE(engine_.closed_sessions().empty());
  EXPECT_EQ(
      Take(NewClient().Get("/stats", httplib::Headers{{"Host", "localhost"}}))
          .status,
      200);
  ExpectAlive();
}

TEST_F(ServerTest, AForeignPageDoesNothingByAskingBlindly) {
  Start();
  // What a page may send without being asked whether it may.
  const Answer answer = Take(NewClient().Post(
      "/admin/cache/session/close", {{"Origin", "https://evil.example"}},
      R"({"session_id":"agent 7"})", "text/plain"));
  ExpectError(answer, 403, "forbidden");
  EXPECT_TRUE(engine_.closed_sessions().empty());
  EXPECT_EQ(Post("/admin/drain", "", {{"Origin", "null"}}).status, 403);
  EXPECT_EQ(
      Post("/admin/drain", "", {{"Origin", "http://localhost:3000"}}).status,
      200);
}

TEST_F(ServerTest, NamesThatAreAllowedAndKeysOpenTheDoor) {
  Server::Config config = AnyPort();
  config.allowed_hosts = {"box.lan"};
  Start(config);
  EXPECT_EQ(Post("/admin/drain", "", {{"Host", "box.lan:8080"}}).status, 200);
  EXPECT_EQ(Post("/admin/drain", "", {{"Host", "evil.example"}}).status, 403);
  config.allowed_hosts = {};
  config.api_key = "secret";
  Start(config);
  EXPECT_EQ(Post("/admin/drain", "",
                 {{"Host", "api.example"},
                  {"Origin", "https://a.example"},
                  {"X-Forwarded-For", "10.0.0.1"},
                  {"X-Api-Key", "secret"}})
                .status,
            200);
}

TEST_F(ServerTest, WithoutAKeyAdminIsNotForWhoeverComesThroughAProxy) {
  Start();
  for (const char* header : {"Forwarded", "X-Forwarded-For", "x-forwarded-for",
                             "X-Real-IP", "Via"}) {
    ExpectError(Post("/admin/drain", "", {{header, "10.0.0.1"}}), 403,
                "forbidden");
  }
  EXPECT_EQ(Take(NewClient().Get("/stats", httplib::Headers{{"X-Forwarded-For",
                                                             "10.0.0.1"}}))
                .status,
            200);
}

TEST_F(ServerTest, APathIsOneShortLineOfTheLog) {
  std::ostringstream log;
  const auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  logger->set_level(spdlog::level::debug);
  server_ = std::make_unique<Server>(AnyPort(), &clock_, logger);
  ASSERT_TRUE(server_->Start().ok());
  server_->SetReady(&engine_, &text_front_);
  EXPECT_EQ(Get("/a%0Ab%1B%5Bc").status, 404);
  EXPECT_EQ(Get("/" + std::string(5000, 'x')).status, 404);
  server_->Stop(std::chrono::milliseconds(0));
  std::istringstream lines(log.str());
  int of_paths = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find('\x1B'), std::string::npos) << line;
    EXPECT_LT(line.size(), 400u);
    of_paths += line.ends_with(": 404") ? 1 : 0;
  }
  EXPECT_EQ(of_paths, 2) << log.str();
  EXPECT_NE(log.str().find("/a\\nb\\x1b[c"), std::string::npos) << log.str();
}

TEST_F(ServerTest, AChatReplyIsWholeAndSaysWhatItCost) {
  FakeReplyScript script = {.pieces = {"hel", "lo"}};
  script.usage.reuse = {.cached = 5, .ram = 3, .tier = 2, .matched = 5};
  engine_.SetScript(script);
  Start();
  const Answer answer = Chat(R"(,"max_tokens":7,"temperature":0)");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "fake-model");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(json["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(json["usage"]["everwarm"]["cached_from_ssd"], 2);
  const engine::Request request = engine_.last_request();
  EXPECT_EQ(TextOf(request.prompt), "[user]hi\n[assistant]");
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  // The template's own end of a turn.
  EXPECT_EQ(request.stops, std::vector<std::string>{"[user]"});
}

TEST_F(ServerTest, EveryReplyHasItsOwnId) {
  Start();
  EXPECT_NE(Chat().json()["id"], Chat().json()["id"]);
}

TEST_F(ServerTest, ACompletionOfTextAddsWhatTheModelExpects) {
  engine_.SetScript({.pieces = {"Rhine"}});
  Start();
  const Answer answer =
      Post("/v1/completions", R"({"prompt":"Rivers:","cache_salt":"me"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["object"], "text_completion");
  EXPECT_EQ(answer.json()["choices"][0]["text"], "Rhine");
  EXPECT_TRUE(answer.json()["id"].get<std::string>().starts_with("cmpl-"));
  const engine::Request request = engine_.last_request();
  EXPECT_EQ(TextOf(request.prompt), "\x01Rivers:");
  EXPECT_EQ(request.name_space, "me");
  EXPECT_EQ(request.max_tokens, 16u);
}

TEST_F(ServerTest, ACompletionOfTokensIsTakenAsItIs) {
  Start();
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":[5,6,7]})").status, 200);
  EXPECT_EQ(engine_.last_request().prompt, (std::vector<TokenId>{5, 6, 7}));
  ExpectError(Post("/v1/completions", R"({"prompt":[5,256]})"), 400);
  ExpectError(Post("/v1/completions", R"({"prompt":[2147483647]})"), 400);
}

TEST_F(ServerTest, SeveralChoicesAreSeveralRequestsWithSeedsOfTheirOwn) {
  engine_.SetScript({.pieces = {"a"}});
  Start();
  const Answer chat = Chat(R"(,"n":3,"seed":7)");
  ASSERT_EQ(chat.status, 200) << chat.body;
  ASSERT_EQ(chat.json()["choices"].size(), 3u);
  std::vector<engine::Request> requests = engine_.requests();
  ASSERT_EQ(requests.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i].prompt, requests[0].prompt);
    EXPECT_EQ(requests[i].sampling.seed, 7 + i);
  }
  const Answer text =
      Post("/v1/completions", R"({"prompt":["x","yz"],"n":2,"echo":true})");
  ASSERT_EQ(text.status, 200) << text.body;
  ASSERT_EQ(text.json()["choices"].size(), 4u);
  EXPECT_EQ(text.json()["choices"][1]["text"], "xa");
  EXPECT_EQ(text.json()["choices"][2]["text"], "yza");
  EXPECT_EQ(text.json()["choices"][3]["index"], 3);
  requests = engine_.requests();
  ASSERT_EQ(requests.size(), 7u);
  EXPECT_EQ(TextOf(requests[6].prompt), "\x01yz");
  // Without a seed each is random by itself.
  EXPECT_FALSE(requests[6].sampling.seed.has_value());
}

TEST_F(ServerTest, OneChoiceThatIsRefusedRefusesThemAll) {
  engine_.SetScript({.endless = true});
  engine_.set_max_requests(2);
  Start();
  ExpectError(Chat(R"(,"n":3)"), 429, "queue_full");
  EXPECT_TRUE(engine_.WaitForCancelled(2, kPatience));
}

TEST_F(ServerTest, APromptIsPublishedBeforeTheCueOfItsReply) {
  Start();
  EXPECT_EQ(Chat().status, 200);
  const engine::Request request = engine_.last_request();
  ASSERT_LT(request.boundary, request.prompt.size());
  EXPECT_EQ(
      TextOf(absl::MakeConstSpan(request.prompt).subspan(request.boundary)),
      "[assistant]");
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"a"})").status, 200);
  EXPECT_EQ(engine_.last_request().boundary, 0u);
}

TEST_F(ServerTest, CallsOfToolsAreRepliesOfTheirOwnKind) {
  engine_.SetScript({.pieces = {"@look:{\"z\"", ":1}"}});
  Start();
  constexpr char kTools[] =
      R"(,"tools":[{"type":"function","function":{"name":"look"}}])";
  const Json whole = Chat(kTools).json();
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  const Json& call = whole["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["arguments"], "{\"z\":1}");
  EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
  const Answer stream = Chat(std::string(kTools) + R"(,"stream":true)");
  EXPECT_NE(stream.body.find(R"("finish_reason":"tool_calls")"),
            std::string::npos);
  EXPECT_EQ(TextOf(engine_.last_request().prompt),
            "[tools]look\n[user]hi\n[assistant]");
}

TEST_F(ServerTest, AFormThatCannotBeFollowedIsTheClientsError) {
  Start();
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    ExpectError(Post(path, R"({"messages":[{"role":"user","content":"a"}],
                              "prompt":"a","grammar":"refuse me"})"),
                400);
  }
  ExpectError(Post("/v1/completions", R"({"prompt":"a","json_schema":
                                          {"$ref":"#/nowhere"}})"),
              400);
  EXPECT_TRUE(engine_.requests().empty());
}

TEST_F(ServerTest, BiasesOfUnknownTokensAreRefused) {
  Start();
  EXPECT_EQ(Chat(R"(,"logit_bias":{"255":1})").status, 200);
  EXPECT_EQ(engine_.last_request().sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{255, 1.0f}}));
  const Answer answer = Chat(R"(,"logit_bias":{"256":1})");
  ExpectError(answer, 400);
  EXPECT_EQ(answer.json()["error"]["param"], "logit_bias");
}

TEST_F(ServerTest, AChatWithoutALimitMayFillTheContext) {
  engine_.set_context_size(100);
  Start();
  EXPECT_EQ(Chat().status, 200);
  const engine::Request request = engine_.last_request();
  EXPECT_EQ(request.max_tokens, 100 - request.prompt.size());
  EXPECT_EQ(Chat(R"(,"max_tokens":99999)").status, 200);
  EXPECT_EQ(engine_.last_request().max_tokens, request.max_tokens);
}

TEST_F(ServerTest, NoTokensAtAllIsAReplyOfLengthZeroThatSaysSo) {
  engine_.SetScript({.reason = engine::FinishReason::kLength});
  Start();
  const Answer answer = Chat(R"(,"max_tokens":0)");
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], "");
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 0);
  EXPECT_EQ(engine_.last_request().max_tokens, 0u);
}

TEST_F(ServerTest, AStreamIsEventsAndDone) {
  engine_.SetScript({.pieces = {"a", "b"}});
  Start();
  const Answer answer =
      Chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.content_type.starts_with("text/event-stream"));
  EXPECT_TRUE(answer.body.starts_with("data: {"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(answer.body.find("\"total_tokens\""), std::string::npos);
}

TEST_F(ServerTest, APromptThatIsTooLongIsRefusedWithBothCounts) {
  engine_.set_context_size(64);
  Start();
  const std::string fits(62, 'x');  // and what add_special adds: 63
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":")" + fits + "\"}").status,
            200);
  for (const char* stream : {"false", "true"}) {
    for (const size_t length : {63, 64, 1000}) {
      const Answer answer =
          Post("/v1/completions", R"({"prompt":")" + std::string(length, 'x') +
                                      R"(","stream":)" + stream + "}");
      ExpectError(answer, 400, "context_length_exceeded");
      const auto message = answer.json()["error"]["message"].get<std::string>();
      EXPECT_NE(message.find(" 64 "), std::string::npos) << message;
      EXPECT_NE(message.find(std::to_string(length + 1)), std::string::npos)
          << message;
    }
    ExpectError(
        Post("/v1/chat/completions",
             R"({"messages":[{"role":"user","content":")" +
                 std::string(100, 'x') + R"("}],"stream":)" + stream + "}"),
        400, "context_length_exceeded");
  }
}

TEST_F(ServerTest, WhatTheTemplateOrTheTokenizerRefusesIsTheClientsError) {
  Start();
  const Answer refused =
      Post("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"refuse me"}]})");
  ExpectError(refused, 400);
  EXPECT_NE(refused.body.find("the template refuses it"), std::string::npos);
  ExpectError(Post("/v1/completions", R"({"prompt":"cannot be split"})"), 400);
  ExpectError(Post("/tokenize", R"({"content":"cannot be split"})"), 400);
}

TEST_F(ServerTest, AFullQueueSaysWhenToComeBack) {
  engine_.SetRefusal(absl::ResourceExhaustedError("32 requests wait"));
  Start();
  for (const char* more : {"", R"(,"stream":true)"}) {
    const Answer answer = Chat(more);
    ExpectError(answer, 429, "queue_full");
    EXPECT_TRUE(answer.HasHeader("Retry-After"));
  }
  engine_.SetRefusal(absl::UnavailableError("the engine stops"));
  ExpectError(Chat(), 503);
  engine_.SetRefusal(absl::OkStatus());
  ExpectAlive();
}

TEST_F(ServerTest, AFailureBeforeTheFirstByteIsAnHttpError) {
  engine_.SetScript({.failure = absl::InternalError("ggml failed")});
  Start();
  ExpectError(Chat(), 500, "engine_error");
  ExpectError(Chat(R"(,"stream":true)"), 500, "engine_error");
}

TEST_F(ServerTest, AFailureInAStreamIsAnErrorEvent) {
  engine_.SetScript(
      {.pieces = {"a"}, .failure = absl::InternalError("ggml failed")});
  Start();
  const Answer answer = Chat(R"(,"stream":true)");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("data: {\"error\":"), std::string::npos);
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  // Not streamed, nobody has seen anything yet.
  ExpectError(Chat(), 500, "engine_error");
}

TEST_F(ServerTest, TokensAndTextGoBothWays) {
  Start();
  EXPECT_EQ(Post("/tokenize", R"({"content":"ab"})").json(),
            Json::parse(R"({"tokens":[97,98]})"));
  EXPECT_EQ(Post("/tokenize", R"({"content":"a","add_special":true})").json(),
            Json::parse(R"({"tokens":[1,97]})"));
  EXPECT_EQ(Post("/tokenize", R"({"content":""})").json(),
            Json::parse(R"({"tokens":[]})"));
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[97,98]})").json(),
            Json::parse(R"({"content":"ab"})"));
  // Half a character is not valid UTF-8, and must not break the JSON.
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[195]})").json()["content"],
            "\xEF\xBF\xBD");
  ExpectError(Post("/detokenize", R"({"tokens":[256]})"), 400);
}

TEST_F(ServerTest, ModelsAreListedAndFound) {
  Start();
  const Json list = Get("/v1/models").json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "fake-model");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(Get("/v1/models/fake-model").json(), list["data"][0]);
  ExpectError(Get("/v1/models/other"), 404, "model_not_found");
}

TEST_F(ServerTest, WithoutAnIdTheModelHasItsOwnName) {
  Server::Config config = AnyPort();
  config.model_id = "";
  Start(config);
  EXPECT_EQ(Get("/v1/models").json()["data"][0]["id"], "fake");
}

TEST_F(ServerTest, StatisticsAreTheEngines) {
  engine::EngineStats stats;
  stats.requests = 42;
  engine_.SetStats(stats);
  Start();
  const Answer answer = Get("/stats");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json()["requests"]["accepted"], 42);
}

}  // namespace
}  // namespace everwarm::server
