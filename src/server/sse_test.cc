#include "server/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/collected_reply.h"
#include "testing/fake_clock.h"
#include "testing/fake_engine.h"

namespace everwarm::server {
namespace {

class SseTest : public testing::Test {
 protected:
  std::unique_ptr<engine::Reply> Submit(FakeReplyScript script) {
    engine_.SetScript(std::move(script));
    return *engine_.Submit({.prompt = {1, 2}});
  }

  SseReply Stream(FakeReplyScript script,
                  CompletionKind kind = CompletionKind::kChat,
                  bool include_usage = false) {
    return SseReply({.kind = kind, .id = "i", .include_usage = include_usage},
                    Submit(std::move(script)), std::nullopt, &clock_);
  }

  // Steps until the end; the client stays.
  SseReply::State Run(SseReply& reply) {
    const SseSink sink = {[this](std::string_view bytes) {
      sent_ += bytes;
      return true;
    }};
    SseReply::State state = SseReply::State::kGoesOn;
    while (state == SseReply::State::kGoesOn) {
      state = reply.Step(sink);
    }
    return state;
  }

  // The payloads of what was sent; each must be a whole event.
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    size_t at = 0;
    while (at < sent_.size()) {
      EXPECT_EQ(sent_.substr(at, 6), "data: ");
      const size_t end = sent_.find("\n\n", at);
      EXPECT_NE(end, std::string::npos);
      events.push_back(sent_.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return events;
  }

  FakeEngine engine_;
  FakeClock clock_;
  std::string sent_;
};

TEST_F(SseTest, AChatStreamIsRoleTextReasonDone) {
  SseReply reply = Stream({.pieces = {"he", "llo"}});
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  const auto events = Events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["delta"]["content"], "he");
  EXPECT_EQ(Json::parse(events[2])["choices"][0]["delta"]["content"], "llo");
  EXPECT_EQ(Json::parse(events[3])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(SseTest, UsageComesBetweenTheReasonAndDoneWhenAskedFor) {
  SseReply reply = Stream({.pieces = {"a"}}, CompletionKind::kText, true);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  const auto events = Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(Json::parse(events[0])["usage"].is_null());
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(events[2])["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(SseTest, AFailureIsAnErrorEventAndNoDone) {
  SseReply reply =
      Stream({.pieces = {"a"}, .failure = absl::InternalError("ggml failed")});
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  const auto events = Events();
  ASSERT_EQ(events.size(), 3u);
  const Json error = Json::parse(events[2])["error"];
  EXPECT_EQ(error["type"], "server_error");
  EXPECT_NE(error["message"].get<std::string>().find("ggml failed"),
            std::string::npos);
}

TEST_F(SseTest, AReplyThatTheServerCutsShortDoesNotLookWhole) {
  SseReply reply =
      Stream({.pieces = {"a"}, .reason = engine::FinishReason::kCancelled});
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  EXPECT_EQ(Json::parse(Events().back())["error"]["code"], "stopping");
}

TEST_F(SseTest, BrokenBytesOfTheModelLeaveAsValidUtf8) {
  SseReply reply = Stream({.pieces = {"x\xff"}}, CompletionKind::kText);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  EXPECT_EQ(Json::parse(Events()[0])["choices"][0]["text"], "x\xEF\xBF\xBD");
}

TEST_F(SseTest, AClientThatIsGoneCancelsTheReply) {
  SseReply reply = Stream({.pieces = {"a"}, .endless = true});
  const SseSink gone = {[](std::string_view) { return false; }};
  EXPECT_EQ(reply.Step(gone), SseReply::State::kClientGone);
  EXPECT_TRUE(engine_.WaitForCancelled(1, std::chrono::milliseconds(0)));
}

TEST_F(SseTest, DestroyingTheStreamCancelsTheReply) {
  { SseReply reply = Stream({.endless = true}); }
  EXPECT_TRUE(engine_.WaitForCancelled(1, std::chrono::milliseconds(0)));
}

TEST_F(SseTest, ALongSilenceIsBrokenByAComment) {
  SseReply reply = Stream({.endless = true});
  const SseSink sink = {[this](std::string_view bytes) {
    sent_ += bytes;
    return true;
  }};
  reply.Step(sink);  // the opening
  sent_.clear();
  EXPECT_EQ(reply.Step(sink), SseReply::State::kGoesOn);
  EXPECT_EQ(sent_, "");
  clock_.Advance(SseReply::kPing);
  EXPECT_EQ(reply.Step(sink), SseReply::State::kGoesOn);
  EXPECT_EQ(sent_.substr(0, 2), ": ");
  EXPECT_EQ(sent_.substr(sent_.size() - 2), "\n\n");
  sent_.clear();
  EXPECT_EQ(reply.Step(sink), SseReply::State::kGoesOn);
  EXPECT_EQ(sent_, "");
}

TEST_F(SseTest, AnEventTakenEarlierIsNotLost) {
  auto engine_reply = Submit({.pieces = {"a", "b"}});
  auto first = engine_reply->Next(std::chrono::milliseconds(0));
  SseReply reply({.kind = CompletionKind::kText}, std::move(engine_reply),
                 std::move(first), &clock_);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  EXPECT_EQ(Json::parse(Events()[0])["choices"][0]["text"], "a");
  EXPECT_EQ(Json::parse(Events()[1])["choices"][0]["text"], "b");
}

TEST_F(SseTest, ACollectedReplyIsTheSameText) {
  const auto reply = Submit({.pieces = {"he", "llo"}});
  const auto whole = CollectReply(*reply, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<CollectedReply>(whole));
  EXPECT_EQ(std::get<CollectedReply>(whole).text, "hello");
}

TEST_F(SseTest, CollectingNoticesThatTheClientLeft) {
  const auto reply = Submit({.pieces = {"a"}, .endless = true});
  EXPECT_TRUE(std::holds_alternative<ClientLeft>(
      CollectReply(*reply, [] { return true; })));
  EXPECT_TRUE(engine_.WaitForCancelled(1, std::chrono::milliseconds(0)));
}

TEST_F(SseTest, CollectingTellsAFailureFromAReply) {
  const auto failed = Submit({.failure = absl::InternalError("x")});
  const auto outcome = CollectReply(*failed, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<ApiError>(outcome));
  EXPECT_EQ(std::get<ApiError>(outcome).http_status, 500);
  const auto cut = Submit({.reason = engine::FinishReason::kCancelled});
  const auto stopped = CollectReply(*cut, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<ApiError>(stopped));
  EXPECT_EQ(std::get<ApiError>(stopped).http_status, 503);
}

}  // namespace
}  // namespace everwarm::server
