// A real server on a free port over a fake engine.
#ifndef EVERWARM_TESTING_SERVER_HARNESS_H_
#define EVERWARM_TESTING_SERVER_HARNESS_H_

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "server/json_text.h"
#include "server/server.h"
#include "testing/fake_engine.h"
#include "testing/fake_text_front.h"

namespace everwarm::server {

// Long enough for a busy machine; nothing waits for it when all is well.
inline constexpr std::chrono::seconds kPatience{20};

class ServerFixture : public testing::Test {
 protected:
  void TearDown() override {
    if (server_ != nullptr) {
      server_->Stop(std::chrono::milliseconds(0));
    }
  }

  static Server::Config AnyPort() {
    Server::Config config;
    config.port = 0;
    config.model_id = "fake-model";
    return config;
  }

  void StartLoading(const Server::Config& config = AnyPort()) {
    server_ = std::make_unique<Server>(config, &clock_, NullLogger());
    const absl::Status status = server_->Start();
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_GT(server_->port(), 0);
  }
  void Start(const Server::Config& config = AnyPort()) {
    StartLoading(config);
    server_->SetReady(&engine_, &text_front_);
  }

  httplib::Client NewClient() const {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(kPatience);
    return client;
  }

  struct Answer {
    int status = -1;  // no answer
    std::string body;
    std::string content_type;
    httplib::Headers headers;
    bool HasHeader(const std::string& name) const {
      return headers.find(name) != headers.end();
    }
    Json json() const { return Json::parse(body, nullptr, false); }
  };
  static Answer Take(const httplib::Result& result) {
    if (!result) {
      return {};
    }
    return {result->status, result->body,
            result->get_header_value("Content-Type"), result->headers};
  }
  Answer Get(const std::string& path) const {
    return Take(NewClient().Get(path));
  }
  Answer Post(const std::string& path, const std::string& body,
              const httplib::Headers& headers = {}) const {
    return Take(NewClient().Post(path, headers, body, "application/json"));
  }
  Answer Chat(const std::string& more = "") const {
    return Post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }

  // A 4xx or 5xx in the API's form.
  static void ExpectError(const Answer& answer, int status,
                          const std::string& code = "") {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.content_type, "application/json");
    const Json json = answer.json();
    ASSERT_TRUE(json.is_object() && json.contains("error")) << answer.body;
    EXPECT_FALSE(json["error"]["message"].get<std::string>().empty());
    if (!code.empty()) {
      EXPECT_EQ(json["error"]["code"], code) << answer.body;
    }
  }
  void ExpectAlive() {
    EXPECT_EQ(Get("/health").status, 200);
    EXPECT_EQ(Chat().status, 200);
  }

  SystemClock clock_;
  FakeEngine engine_;
  FakeTextFront text_front_;
  std::unique_ptr<Server> server_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_TESTING_SERVER_HARNESS_H_
