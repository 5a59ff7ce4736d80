// Replies of chat and completions as JSON and as chunks.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/openai_chat_form.h"
#include "server/openai_completions_form.h"
#include "testing/fake_text_front.h"

namespace everwarm::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

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

WholeChoice Choice(const std::string& text,
                   engine::FinishReason reason = engine::FinishReason::kStop) {
  return {.text = text, .finished = Finished(reason)};
}

ReplyIdentity Identity() {
  return {.id = "id-1", .model = "m", .created = 1767225600};
}

class OpenAiFormsTest : public testing::Test {
 protected:
  OpenAiChatForm Chat(bool include_usage = false, bool tools = false,
                      size_t choices = 1, bool logprobs = false) {
    OpenAiChatForm::Setup setup;
    setup.identity = Identity();
    setup.choices = choices;
    setup.include_usage = include_usage;
    setup.logprobs = logprobs;
    setup.syntax = tools ? std::make_shared<FakeReplySyntax>() : nullptr;
    setup.new_call_id = [this] {
      return "call_" + std::to_string(next_call_++);
    };
    setup.text_front = &text_front_;
    return OpenAiChatForm(std::move(setup));
  }
  OpenAiCompletionsForm Text(std::vector<std::string> beginnings = {""},
                             bool logprobs = false) {
    OpenAiCompletionsForm::Setup setup;
    setup.identity = Identity();
    setup.beginnings = std::move(beginnings);
    setup.logprobs = logprobs;
    setup.text_front = &text_front_;
    return OpenAiCompletionsForm(std::move(setup));
  }

  // What a whole stream of these pieces sends.
  static std::string Stream(
      ReplyForm& form, const std::vector<engine::TextEvent>& pieces,
      engine::FinishReason reason = engine::FinishReason::kStop) {
    std::string bytes = form.Begin();
    for (const engine::TextEvent& piece : pieces) {
      bytes += form.Text(0, piece);
    }
    bytes += form.Finish(0, Finished(reason));
    return bytes += form.End();
  }
  // The JSON of each event; "[DONE]" as a string.
  static std::vector<Json> Events(const std::string& bytes) {
    std::vector<Json> events;
    size_t at = 0;
    while (at < bytes.size()) {
      EXPECT_EQ(bytes.substr(at, 6), "data: ");
      const size_t end = bytes.find("\n\n", at);
      const std::string data = bytes.substr(at + 6, end - at - 6);
      events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
      at = end + 2;
    }
    return events;
  }
  static engine::ChosenToken Token(char letter, float logprob) {
    return {{letter, logprob}, {{'x', -0.5f}, {letter, logprob}}};
  }

  FakeTextFront text_front_;
  int next_call_ = 1;
};

TEST_F(OpenAiFormsTest, AWholeChatReplyHasTheApisForm) {
  EXPECT_EQ(Chat().Whole({Choice("hello")}), Json::parse(R"({
    "id":"id-1","object":"chat.completion","created":1767225600,"model":"m",
    "choices":[{"index":0,"message":{"role":"assistant","content":"hello",
      "refusal":null},"logprobs":null,"finish_reason":"stop"}],
    "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,
      "prompt_tokens_details":{"cached_tokens":8},
      "everwarm":{"cached_from_ram":5,"cached_from_ssd":3,"matched_tokens":9,
        "durable_tokens":11,"queued_ms":1.0,"restore_ms":2.5,"prefill_ms":3.0,"decode_ms":4.0}}})"));
}

TEST_F(OpenAiFormsTest, AWholeCompletionHasTheApisForm) {
  Json reply = Text().Whole({Choice("hello", engine::FinishReason::kLength)});
  reply.erase("usage");
  EXPECT_EQ(reply, Json::parse(R"({
    "id":"id-1","object":"text_completion","created":1767225600,"model":"m",
    "choices":[{"index":0,"text":"hello","logprobs":null,
      "finish_reason":"length"}]})"));
}

TEST_F(OpenAiFormsTest, ThoughtsAndCallsHaveTheirOwnFields) {
  const Json reply =
      Chat(false, true).Whole({Choice(R"(~hm~@look:{"a":1}@stop:{})")});
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(reply["choices"][0]["message"], Json::parse(R"({
    "role":"assistant","content":null,"refusal":null,"reasoning_content":"hm",
    "tool_calls":[
      {"id":"call_1","type":"function",
       "function":{"name":"look","arguments":"{\"a\":1}"}},
      {"id":"call_2","type":"function",
       "function":{"name":"stop","arguments":"{}"}}]})"));
  // Cut off in a call: what there is, and why.
  const Json cut =
      Chat(false, true)
          .Whole({Choice(R"(go@look:{"a)", engine::FinishReason::kLength)});
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(cut["choices"][0]["message"]["content"], "go");
  EXPECT_EQ(
      cut["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
      R"({"a)");
}

TEST_F(OpenAiFormsTest, ATextThatIsNoReplyOfItsSyntaxIsTheContent) {
  const Json reply = Chat(false, true).Whole({Choice("!broken")});
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "!broken");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  OpenAiChatForm form = Chat(false, true);
  std::string text;
  for (const Json& event : Events(Stream(form, {{"!bro"}, {"ken"}}))) {
    if (event.is_object()) {
      text += event["choices"][0]["delta"].value("content", "");
    }
  }
  EXPECT_EQ(text, "!broken");
}

TEST_F(OpenAiFormsTest, ChatChunksOpenWithTheRoleAndEndWithTheReason) {
  OpenAiChatForm form = Chat();
  const std::vector<Json> events =
      Events(Stream(form, {{"a"}}, engine::FinishReason::kLength));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"],
            Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_TRUE(events[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[1]["choices"][0]["delta"],
            Json::parse(R"({"content":"a"})"));
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(events[2].contains("usage"));
  EXPECT_EQ(events[3], "[DONE]");
}

// Whatever the pieces, the sum of the deltas is the whole message.
TEST_F(OpenAiFormsTest, StreamedThoughtsAndCallsAddUpToTheWholeMessage) {
  const std::string text = R"(~hm, ok~I look.@look:{"a":[1,2]}@stop:{"b":""})";
  const Json whole = Chat(false, true).Whole({Choice(text)});
  const Json message = whole["choices"][0]["message"];
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    next_call_ = 1;
    OpenAiChatForm form = Chat(false, true);
    std::string bytes = form.Begin();
    for (size_t at = 0; at < text.size(); at += piece) {
      bytes += form.Text(0, {text.substr(at, piece)});
    }
    bytes += form.Finish(0, Finished(engine::FinishReason::kStop));
    std::string reasoning;
    std::string content;
    std::vector<Json> calls;
    for (const Json& event : Events(bytes)) {
      const Json& delta = event["choices"][0]["delta"];
      reasoning += delta.value("reasoning_content", "");
      content += delta.value("content", "");
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        const auto index = call["index"].get<size_t>();
        if (call.contains("id")) {
          ASSERT_EQ(index, calls.size());
          calls.push_back(call);
          calls.back().erase("index");
        } else {
          ASSERT_LT(index, calls.size());
          auto& arguments = calls[index]["function"]["arguments"];
          arguments = arguments.get<std::string>() +
                      call["function"]["arguments"].get<std::string>();
        }
      }
    }
    EXPECT_EQ(reasoning, message["reasoning_content"]) << piece;
    EXPECT_EQ(content, message["content"]) << piece;
    EXPECT_EQ(Json(calls), message["tool_calls"]) << piece;
    EXPECT_NE(bytes.find("\"tool_calls\"}"), std::string::npos) << piece;
  }
}

TEST_F(OpenAiFormsTest, UsageIsNullInEveryChunkButTheLastOne) {
  OpenAiChatForm form = Chat(true);
  std::vector<Json> events = Events(Stream(form, {{"a"}}));
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(events[i].contains("usage"));
    EXPECT_TRUE(events[i]["usage"].is_null());
  }
  EXPECT_EQ(events[3]["choices"], Json::array());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 13);
}

TEST_F(OpenAiFormsTest, ChoicesHaveTheirNumbersAndOnePromptIsCountedOnce) {
  const Json whole =
      Chat(false, false, 3).Whole({Choice("a"), Choice("b"), Choice("c")});
  ASSERT_EQ(whole["choices"].size(), 3u);
  EXPECT_EQ(whole["choices"][2]["index"], 2);
  EXPECT_EQ(whole["choices"][2]["message"]["content"], "c");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 9);
  OpenAiChatForm form = Chat(false, false, 2);
  const std::vector<Json> events = [&] {
    const std::string opening = form.Begin();
    return Events(opening + form.Text(1, {"x"}));
  }();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["index"], 0);
  EXPECT_EQ(events[1]["choices"][0]["index"], 1);
  EXPECT_EQ(events[2]["choices"][0]["index"], 1);
  // Two prompts are two prompts.
  EXPECT_EQ(Text({"", ""}).Whole(
                {Choice("a"), Choice("b")})["usage"]["prompt_tokens"],
            20);
}

TEST_F(OpenAiFormsTest, LogprobsComeWithTheirTokens) {
  WholeChoice choice = Choice("ab");
  choice.tokens = {Token('a', -1.0f), Token('b', -2.0f)};
  const Json chat = Chat(false, false, 1, true).Whole({choice});
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"][1], Json::parse(R"(
      {"token":"b","logprob":-2.0,"bytes":[98],"top_logprobs":[
        {"token":"x","logprob":-0.5,"bytes":[120]},
        {"token":"b","logprob":-2.0,"bytes":[98]}]})"));
  const Json text = Text({">"}, true).Whole({choice});
  EXPECT_EQ(text["choices"][0]["text"], ">ab");
  EXPECT_EQ(text["choices"][0]["logprobs"], Json::parse(R"(
      {"tokens":["a","b"],"token_logprobs":[-1.0,-2.0],
       "top_logprobs":[{"x":-0.5,"a":-1.0},{"x":-0.5,"b":-2.0}],
       "text_offset":[1,2]})"));
  // Streamed, each token once, also when its text is held back.
  OpenAiChatForm form = Chat(false, true, 1, true);
  const std::string bytes =
      Stream(form, {{"@", {Token('@', -1.0f)}},
                    {"f:{}", {Token('f', -2.0f), Token('}', -3.0f)}}});
  std::string tokens;
  for (const Json& event : Events(bytes)) {
    if (!event.is_object()) {
      continue;
    }
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) {
      for (const Json& token : logprobs["content"]) {
        tokens += token["token"].get<std::string>();
      }
    }
  }
  EXPECT_EQ(tokens, "@f}");
}

TEST_F(OpenAiFormsTest, AnEchoComesFirst) {
  EXPECT_EQ(Text({"ask: "}).Whole({Choice("yes")})["choices"][0]["text"],
            "ask: yes");
  OpenAiCompletionsForm form = Text({"ask: "});
  const std::vector<Json> events = Events(Stream(form, {{"yes"}}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "ask: ");
  EXPECT_EQ(events[1]["choices"][0]["text"], "yes");
  EXPECT_EQ(Text().Begin(), "");
}

TEST_F(OpenAiFormsTest, TotalsDoNotWrap) {
  engine::Usage usage;
  usage.prompt_tokens = 4'000'000'000u;
  usage.completion_tokens = 4'000'000'000u;
  EXPECT_EQ(UsageJson(usage)["total_tokens"], 8'000'000'000u);
}

}  // namespace
}  // namespace everwarm::server
