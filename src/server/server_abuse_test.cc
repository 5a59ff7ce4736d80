// Requests that are wrong, and clients that leave.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "testing/server_harness.h"

namespace everwarm::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::string_literals::operator""s;

using ServerAbuseTest = ServerFixture;

// A client that speaks bytes.
class RawConnection {
 public:
  explicit RawConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  ~RawConnection() { Close(); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool Send(const std::string& bytes) {
    return connected_ &&
           send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes.size());
  }
  // Everything until the server closes, or until `until` was seen.
  std::string Receive(const std::string& until = "") {
    std::string all;
    char buffer[4096];
    while (until.empty() || all.find(until) == std::string::npos) {
      const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) {
        break;
      }
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }
  void Close() {
    if (socket_ >= 0) {
      close(socket_);
      socket_ = -1;
    }
  }

 private:
  int socket_;
  bool connected_ = false;
};

std::string RawPost(const std::string& path, const std::string& body,
                    const std::string& version = "1.1") {
  return "POST " + path + " HTTP/" + version +
         "\r\nHost: localhost\r\nContent-Type: "
         "application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr char kEndlessChat[] =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":)";

TEST_F(ServerAbuseTest, WrongBodiesAreTheClientsErrorOnEveryPath) {
  Start();
  const std::vector<std::string> bodies = {
      "",
      "{",
      "[]",
      "null",
      "7",
      "hello",
      "{\"a\":NaN}",
      "\0\xff\xfe"s,
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
      "{\"prompt\":\"\xff\"}",
      std::string(1'000'000, '['),
      "{}",
      R"({"messages":[],"prompt":"","content":null,"tokens":null})",
      R"({"messages":[{}],"prompt":{},"content":{},"tokens":{}})",
  };
  for (const char* path : {"/v1/chat/completions", "/v1/completions",
                           "/v1/messages", "/v1/messages/count_tokens",
                           "/v1/responses", "/tokenize", "/detokenize"}) {
    for (const std::string& body : bodies) {
      SCOPED_TRACE(std::string(path) + " " + body.substr(0, 60));
      ExpectError(Post(path, body), 400);
    }
  }
  EXPECT_TRUE(engine_.requests().empty());
  ExpectAlive();
}

TEST_F(ServerAbuseTest, OddTextReachesTheModelUnharmed) {
  Start();
  const std::string body =
      R"({"messages":[{"role":"user","content":"a\u0000b\ud83d\ude00\n"}]})";
  EXPECT_EQ(Post("/v1/chat/completions", body).status, 200);
  EXPECT_EQ(TextOf(engine_.last_request().prompt),
            "[user]a\0b\xF0\x9F\x98\x80\n\n[assistant]"s);
}

TEST_F(ServerAbuseTest, UnknownPathsAndMethodsSaySo) {
  Start();
  ExpectError(Get("/nothing"), 404, "not_found");
  ExpectError(Get("/"), 404, "not_found");
  ExpectError(Post("/v1/nothing", "{}"), 404, "not_found");
  const Answer wrong = Get("/v1/chat/completions");
  ExpectError(wrong, 405, "method_not_allowed");
  EXPECT_EQ(wrong.headers.find("Allow")->second, "POST");
  ExpectError(Post("/health", ""), 405);
  ExpectError(Get("/admin/cache/flush"), 405);
  ExpectError(Take(NewClient().Delete("/v1/models")), 405);
  ExpectError(Take(NewClient().Options("/v1/models")), 405);
}

TEST_F(ServerAbuseTest, ABodyThatIsTooLargeIs413) {
  Server::Config config = AnyPort();
  config.max_body_bytes = 1000;
  Start(config);
  ExpectError(Chat(R"(,"user":")" + std::string(1000, 'x') + "\""), 413,
              "body_too_large");
  ExpectAlive();
}

TEST_F(ServerAbuseTest, WhatIsNoHttpEndsOnlyItsOwnConnection) {
  Start();
  for (const char* bytes :
       {"hello\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
        "GET /health HTTP/9.9\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
        "GET /health HTTP/1.1\r\nRange: bytes=z\r\n\r\n"}) {
    RawConnection connection(server_->port());
    ASSERT_TRUE(connection.Send(bytes));
    const std::string answer = connection.Receive("\r\n\r\n");
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4"))
        << bytes << answer;
  }
  ExpectAlive();
}

TEST_F(ServerAbuseTest, AKeyIsAskedForOnEverythingButHealth) {
  Server::Config config = AnyPort();
  config.api_key = "secret";
  Start(config);
  EXPECT_EQ(Get("/health").status, 200);
  ExpectError(Chat(), 401, "invalid_api_key");
  ExpectError(Get("/stats"), 401, "invalid_api_key");
  ExpectError(Get("/nothing"), 401, "invalid_api_key");
  ExpectError(Post("/admin/cache/flush", ""), 401, "invalid_api_key");
  const httplib::Headers wrong = {{"Authorization", "Bearer secreT"}};
  ExpectError(Post("/tokenize", R"({"content":"a"})", wrong), 401);
  const httplib::Headers right = {{"Authorization", "Bearer secret"}};
  EXPECT_EQ(Post("/tokenize", R"({"content":"a"})", right).status, 200);
  const httplib::Headers other = {{"X-Api-Key", "secret"}};
  EXPECT_EQ(Post("/tokenize", R"({"content":"a"})", other).status, 200);
  EXPECT_TRUE(engine_.requests().empty());
}

// Not streamed, streamed from the first token, and streamed with nothing yet.
TEST_F(ServerAbuseTest, AClientThatLeavesCancelsItsReplySoon) {
  Start();
  uint32_t left = 0;
  for (const bool has_text : {true, false}) {
    for (const char* stream : {"false}", "true}"}) {
      FakeReplyScript script = {.endless = true};
      if (has_text) {
        script.pieces = {"a"};
      }
      engine_.SetScript(script);
      RawConnection connection(server_->port());
      ASSERT_TRUE(connection.Send(
          RawPost("/v1/chat/completions", std::string(kEndlessChat) + stream)));
      ASSERT_TRUE(engine_.WaitForRequests(left + 1, kPatience));
      connection.Close();
      const auto begin = steady_clock::now();
      ASSERT_TRUE(engine_.WaitForCancelled(++left, kPatience)) << stream;
      // About 100 ms on a quiet machine.
      EXPECT_LT(steady_clock::now() - begin, milliseconds(2000)) << stream;
    }
  }
  engine_.SetScript({});
  ExpectAlive();
}

TEST_F(ServerAbuseTest, TextArrivesBeforeTheReplyIsComplete) {
  engine_.SetScript({.pieces = {"early"}, .endless = true});
  Start();
  RawConnection connection(server_->port());
  ASSERT_TRUE(connection.Send(
      RawPost("/v1/chat/completions", std::string(kEndlessChat) + "true}")));
  EXPECT_NE(connection.Receive("early").find("early"), std::string::npos);
}

TEST_F(ServerAbuseTest, AnOldClientGetsAStreamWithoutChunks) {
  engine_.SetScript({.pieces = {"a"}});
  Start();
  RawConnection connection(server_->port());
  ASSERT_TRUE(connection.Send(RawPost(
      "/v1/chat/completions", std::string(kEndlessChat) + "true}", "1.0")));
  const std::string answer = connection.Receive();
  EXPECT_EQ(answer.find("chunked"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\r\n\r\ndata: {"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n")) << answer;
}

TEST_F(ServerAbuseTest, HealthAnswersWhileEveryPlaceIsTaken) {
  Server::Config config = AnyPort();
  config.http_threads = 6;
  config.max_open_requests = 3;
  config.max_open_flushes = 1;
  engine_.SetScript({.endless = true});
  Start(config);
  std::vector<std::unique_ptr<RawConnection>> waiting;
  for (size_t i = 0; i < 3; ++i) {
    waiting.push_back(std::make_unique<RawConnection>(server_->port()));
    ASSERT_TRUE(waiting.back()->Send(
        RawPost("/v1/chat/completions", std::string(kEndlessChat) + "false}")));
  }
  ASSERT_TRUE(engine_.WaitForRequests(3, kPatience));
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/stats").json()["requests"]["open"], 3);
  const Answer more = Chat();
  ExpectError(more, 429, "queue_full");
  EXPECT_TRUE(more.HasHeader("Retry-After"));
  waiting.clear();
  ASSERT_TRUE(engine_.WaitForCancelled(3, kPatience));
}

TEST_F(ServerAbuseTest, ManyClientsAtOnceGetTheirOwnReplies) {
  engine_.SetScript({.pieces = {"a", "b", "c"}});
  Start();
  std::vector<std::thread> clients;
  std::vector<int> good(16, 0);
  for (size_t i = 0; i < good.size(); ++i) {
    clients.emplace_back([this, i, &good] {
      const Answer answer = Chat(i % 2 == 0 ? "" : R"(,"stream":true)");
      good[i] =
          answer.status == 200 &&
          answer.body.find(i % 2 == 0 ? "abc" : "[DONE]") != std::string::npos;
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(good, std::vector<int>(good.size(), 1));
}

TEST_F(ServerAbuseTest, StoppingCutsOffWhatDoesNotEnd) {
  engine_.SetScript({.pieces = {"a"}, .endless = true});
  Start();
  RawConnection whole(server_->port());
  RawConnection streamed(server_->port());
  ASSERT_TRUE(whole.Send(
      RawPost("/v1/chat/completions", std::string(kEndlessChat) + "false}")));
  ASSERT_TRUE(streamed.Send(
      RawPost("/v1/chat/completions", std::string(kEndlessChat) + "true}")));
  ASSERT_TRUE(engine_.WaitForRequests(2, kPatience));
  EXPECT_NE(streamed.Receive("\"a\"").find("\"a\""), std::string::npos);
  server_->Stop(milliseconds(1));
  EXPECT_TRUE(engine_.WaitForCancelled(2, kPatience));
  EXPECT_TRUE(whole.Receive().starts_with("HTTP/1.1 503"));
  EXPECT_EQ(streamed.Receive().find("[DONE]"), std::string::npos);
}

TEST_F(ServerAbuseTest, StoppingLetsAReplyFinishMeanwhileRefusingNewOnes) {
  engine_.SetScript({.pieces = {"a"}, .endless = true});
  Start();
  RawConnection open(server_->port());
  ASSERT_TRUE(open.Send(
      RawPost("/v1/chat/completions", std::string(kEndlessChat) + "false}")));
  ASSERT_TRUE(engine_.WaitForRequests(1, kPatience));
  std::thread stopper([this] { server_->Stop(kPatience); });
  Answer health = Get("/health");
  while (health.status == 200) {
    health = Get("/health");
  }
  EXPECT_EQ(health.json()["status"], "stopping");
  ExpectError(Chat(), 503, "stopping");
  open.Close();  // the last one leaves: Stop() need not wait longer
  stopper.join();
}

}  // namespace
}  // namespace everwarm::server
