#include "server/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/openai_chat_form.h"
#include "server/openai_completions_form.h"
#include "testing/fake_clock.h"
#include "testing/fake_engine.h"
#include "testing/fake_text_front.h"

namespace everwarm::server {
namespace {

class SseTest : public testing::Test {
 protected:
  enum class Kind { kChat, kText };

  ReplySet Submit(FakeReplyScript script, size_t choices = 1) {
    engine_.SetScript(std::move(script));
    return *ReplySet::Submit(
        engine_, std::vector<engine::Request>(choices, {.prompt = {1, 2}}));
  }

  std::unique_ptr<ReplyForm> Form(Kind kind, bool include_usage,
                                  size_t choices) {
    if (kind == Kind::kChat) {
      OpenAiChatForm::Setup setup;
      setup.identity.id = "i";
      setup.choices = choices;
      setup.include_usage = include_usage;
      return std::make_unique<OpenAiChatForm>(std::move(setup));
    }
    OpenAiCompletionsForm::Setup setup;
    setup.identity.id = "i";
    setup.beginnings.resize(choices);
    setup.choices_per_prompt = choices;
    setup.include_usage = include_usage;
    return std::make_unique<OpenAiCompletionsForm>(std::move(setup));
  }

  SseReply Stream(FakeReplyScript script, Kind kind = Kind::kChat,
                  bool include_usage = false, size_t choices = 1) {
    return SseReply(Form(kind, include_usage, choices),
                    Submit(std::move(script), choices), &clock_);
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
  SseReply reply = Stream({.pieces = {"a"}}, Kind::kText, true);
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
  SseReply reply = Stream({.pieces = {"x\xff"}}, Kind::kText);
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
  ReplySet replies = Submit({.pieces = {"a", "b"}});
  auto first = replies.Next(std::chrono::milliseconds(0));
  ASSERT_TRUE(first.has_value());
  replies.PutBack(*std::move(first));
  SseReply reply(Form(Kind::kText, false, 1), std::move(replies), &clock_);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  EXPECT_EQ(Json::parse(Events()[0])["choices"][0]["text"], "a");
  EXPECT_EQ(Json::parse(Events()[1])["choices"][0]["text"], "b");
}

TEST_F(SseTest, SeveralChoicesEndTogetherWithOneDone) {
  SseReply reply = Stream({.pieces = {"a", "b"}}, Kind::kText, true, 3);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  const auto events = Events();
  std::vector<std::string> texts(3);
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"ab", "ab", "ab"}));
  EXPECT_EQ(Json::parse(events[events.size() - 2])["usage"]["prompt_tokens"],
            2);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(SseTest, OneChoiceThatFailsEndsThemAll) {
  SseReply reply = Stream({.failure = absl::InternalError("ggml failed")},
                          Kind::kText, false, 2);
  EXPECT_EQ(Run(reply), SseReply::State::kComplete);
  ASSERT_EQ(Events().size(), 1u);
  EXPECT_TRUE(Json::parse(Events()[0]).contains("error"));
}

TEST_F(SseTest, CollectedRepliesAreTheSameTexts) {
  ReplySet replies = Submit({.pieces = {"he", "llo"}}, 2);
  const auto whole = CollectReplies(replies, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<std::vector<WholeChoice>>(whole));
  const auto& choices = std::get<std::vector<WholeChoice>>(whole);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].text, "hello");
  EXPECT_EQ(choices[1].text, "hello");
}

TEST_F(SseTest, CollectingNoticesThatTheClientLeft) {
  ReplySet replies = Submit({.pieces = {"a"}, .endless = true}, 2);
  EXPECT_TRUE(std::holds_alternative<ClientLeft>(
      CollectReplies(replies, [] { return true; })));
  EXPECT_TRUE(engine_.WaitForCancelled(2, std::chrono::milliseconds(0)));
}

TEST_F(SseTest, CollectingTellsAFailureFromAReply) {
  ReplySet failed = Submit({.failure = absl::InternalError("x")});
  const auto outcome = CollectReplies(failed, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<ApiError>(outcome));
  EXPECT_EQ(std::get<ApiError>(outcome).http_status, 500);
  ReplySet cut = Submit({.reason = engine::FinishReason::kCancelled});
  const auto stopped = CollectReplies(cut, [] { return false; });
  ASSERT_TRUE(std::holds_alternative<ApiError>(stopped));
  EXPECT_EQ(std::get<ApiError>(stopped).http_status, 503);
}

}  // namespace
}  // namespace everwarm::server
