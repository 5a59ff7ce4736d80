// OpenAI's /v1/responses over a fake engine, and its store.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/response_store.h"
#include "server/responses_request.h"
#include "testing/server_harness.h"

namespace everwarm::server {
namespace {

TEST(ResponsesRequestTest, TheInputsFormsBecomeMessages) {
  const auto text = ParseResponsesRequest(Json::parse(R"({"input":"hi"})"));
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_EQ(text->prompt.messages.size(), 1u);
  EXPECT_EQ(text->prompt.messages[0].role, "user");
  EXPECT_EQ(text->prompt.messages[0].content, "hi");
  EXPECT_TRUE(text->store);
  const auto items = ParseResponsesRequest(Json::parse(R"({"input":[
      {"role":"developer","content":"a"},
      {"type":"message","role":"user","content":[
        {"type":"input_text","text":"b"},{"type":"input_text","text":"c"}]},
      {"type":"reasoning","id":"r","summary":[],"content":[
        {"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","content":[
        {"type":"output_text","text":"d","annotations":[]}]},
      {"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"stop","arguments":"{}"},
      {"type":"function_call_output","call_id":"c1","output":"e"},
      {"type":"function_call_output","call_id":"c2","output":[
        {"type":"input_text","text":"f"}]}]})"));
  ASSERT_TRUE(items.ok()) << items.status();
  const auto& messages = items->prompt.messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "b\nc");
  EXPECT_EQ(messages[2].reasoning, "hm");
  EXPECT_EQ(messages[2].content, "d");
  EXPECT_EQ(messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(messages[3].role, "tool");
  EXPECT_EQ(messages[3].tool_call_id, "c1");
  EXPECT_EQ(messages[4].content, "f");
}

TEST(ResponsesRequestTest, OptionsAreRead) {
  const auto request = ParseResponsesRequest(Json::parse(R"({"input":"hi",
      "instructions":"Be brief.","max_output_tokens":5,"temperature":0,
      "stream":true,"store":false,"previous_response_id":"resp_1",
      "parallel_tool_calls":false,"reasoning":{"effort":"none"},
      "tools":[{"type":"function","name":"look","parameters":
        {"type":"object","properties":{}}}],
      "tool_choice":{"type":"function","name":"look"},
      "text":{"format":{"type":"json_schema","name":"x","schema":
        {"type":"object"}}}})"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->instructions, "Be brief.");
  EXPECT_EQ(request->options.max_tokens, 5u);
  EXPECT_TRUE(request->options.stream);
  EXPECT_FALSE(request->store);
  EXPECT_EQ(request->previous_response_id, "resp_1");
  EXPECT_FALSE(request->prompt.thinking);
  EXPECT_FALSE(request->prompt.parallel_tool_calls);
  EXPECT_EQ(request->prompt.required_tool, "look");
  EXPECT_EQ(request->prompt.json_schema, R"({"type":"object"})");
  EXPECT_EQ(request->echo["tools"][0]["name"], "look");
  EXPECT_EQ(request->echo["truncation"], "disabled");
}

TEST(ResponsesRequestTest, WhatIsWrongNamesItsField) {
  const std::pair<const char*, const char*> kCases[] = {
      {"input", R"({})"},
      {"input", R"({"input":[]})"},
      {"input", R"({"input":7})"},
      {"input[0]", R"({"input":[7]})"},
      {"input[0]", R"({"input":[{"type":"item_reference","id":"a"}]})"},
      {"input[0].role", R"({"input":[{"content":"a"}]})"},
      {"input[0].role", R"({"input":[{"role":"robot","content":"a"}]})"},
      {"input[0].content[0]", R"({"input":[{"role":"user","content":[
          {"type":"input_image","image_url":"data:"}]}]})"},
      {"input[0].call_id", R"({"input":[{"type":"function_call_output",
          "output":"a"}]})"},
      {"input[0]", R"({"input":[{"type":"function_call","call_id":"a",
          "name":"f","arguments":"{"}]})"},
      {"input[0].content", R"({"input":[{"type":"reasoning","content":7}]})"},
      {"max_output_tokens", R"({"input":"a","max_output_tokens":1e18})"},
      {"max_output_tokens", R"({"input":"a","max_output_tokens":-1})"},
      {"max_output_tokens", R"({"input":"a","max_output_tokens":"5"})"},
      {"background", R"({"input":"a","background":true})"},
      {"conversation", R"({"input":"a","conversation":"c"})"},
      {"prompt", R"({"input":"a","prompt":{"id":"p"}})"},
      {"tools[0]", R"({"input":"a","tools":[{"type":"web_search"}]})"},
      {"text", R"({"input":"a","text":7})"},
      {"text.format", R"({"input":"a","text":{"format":{"type":"x"}}})"},
      {"text.format.schema", R"({"input":"a","text":{"format":{"strict":true,
          "type":"json_schema","schema":{"multipleOf":2}}}})"},
      {"tools[0].parameters", R"({"input":"a","tools":[{"type":"function",
          "name":"f","strict":true,"parameters":{"oneOf":[{}]}}]})"},
      {"reasoning", R"({"input":"a","reasoning":7})"},
      {"store", R"({"input":"a","store":1})"},
      {"instructions", R"({"input":"a","instructions":7})"},
      {"previous_response_id", R"({"input":"a","previous_response_id":7})"},
  };
  for (const auto& [param, body] : kCases) {
    const auto request = ParseResponsesRequest(Json::parse(body));
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(RefusalError(request.status()).param, param) << body;
  }
}

TEST(ResponseStoreTest, AConversationIsFoundInItsNamespaceOnly) {
  ResponseStore store({});
  store.Put("a", "", {{"user", "hi"}});
  store.Put("b", "tenant", {{"user", "ho"}});
  ASSERT_TRUE(store.Find("a", "").has_value());
  EXPECT_EQ(store.Find("a", "")->front().content, "hi");
  EXPECT_FALSE(store.Find("a", "tenant").has_value());
  EXPECT_TRUE(store.Find("b", "tenant").has_value());
  EXPECT_FALSE(store.Find("b", "").has_value());
  EXPECT_FALSE(store.Find("c", "").has_value());
}

TEST(ResponseStoreTest, TheLeastRecentlyUsedGoFirst) {
  ResponseStore store({.max_entries = 3});
  for (const char* id : {"a", "b", "c"}) {
    store.Put(id, "", {{"user", id}});
  }
  EXPECT_TRUE(store.Find("a", "").has_value());
  store.Put("d", "", {{"user", "d"}});
  EXPECT_EQ(store.entries(), 3u);
  EXPECT_FALSE(store.Find("b", "").has_value());
  EXPECT_TRUE(store.Find("a", "").has_value());
}

TEST(ResponseStoreTest, ItsBytesAreBounded) {
  ResponseStore store({.max_entries = 1000, .max_bytes = 10'000});
  for (int i = 0; i < 100; ++i) {
    store.Put(std::to_string(i), "", {{"user", std::string(1000, 'x')}});
    EXPECT_LE(store.bytes(), 10'000u);
  }
  EXPECT_GT(store.entries(), 1u);
  EXPECT_TRUE(store.Find("99", "").has_value());
  store.Put("large", "", {{"user", std::string(20'000, 'x')}});
  EXPECT_FALSE(store.Find("large", "").has_value());
  EXPECT_EQ(store.bytes(), 0u);
}

class ResponsesTest : public ServerFixture {
 protected:
  Answer Respond(const std::string& body) {
    return Post("/v1/responses", body);
  }
  static std::vector<Json> Events(const std::string& body) {
    std::vector<Json> events;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      const size_t line = body.find("\ndata: ", at);
      events.push_back(Json::parse(body.substr(line + 7, end - line - 7)));
      EXPECT_EQ(body.substr(at, line - at),
                "event: " + events.back()["type"].get<std::string>());
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
      at = end + 2;
    }
    return events;
  }
  std::string LastPrompt() { return TextOf(engine_.last_request().prompt); }
};

TEST_F(ResponsesTest, AReplyHasTheApisForm) {
  FakeReplyScript script = {.pieces = {"hel", "lo"}};
  script.usage.reuse = {.cached = 5, .ram = 5, .tier = 0, .matched = 5};
  engine_.SetScript(script);
  Start();
  const Answer answer = Respond(
      R"({"input":"hi","instructions":"Be brief.","metadata":{"a":"b"}})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["instructions"], "Be brief.");
  EXPECT_EQ(json["metadata"], Json::parse(R"({"a":"b"})"));
  ASSERT_EQ(json["output"].size(), 1u);
  EXPECT_EQ(json["output"][0]["type"], "message");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(json["usage"]["output_tokens"], 2);
  EXPECT_EQ(LastPrompt(), "[system]Be brief.\n[user]hi\n[assistant]");
}

TEST_F(ResponsesTest, APreviousResponseIsGoneOnWith) {
  engine_.SetScript({.pieces = {"~hm~I look.@look:{}"}});
  Start();
  const Json first = Respond(R"({"input":"hi","instructions":"Once.",
                  "tools":[{"type":"function","name":"look"}]})")
                         .json();
  const auto& output = first["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["content"][0]["text"], "hm");
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[2]["name"], "look");
  const auto call = output[2]["call_id"].get<std::string>();
  engine_.SetScript({.pieces = {"done"}});
  const Answer second =
      Respond(R"({"previous_response_id":")" + first["id"].get<std::string>() +
              R"(","input":[{"type":"function_call_output","call_id":")" +
              call + R"(","output":"seen"}]})");
  ASSERT_EQ(second.status, 200) << second.body;
  // Instructions are those of their own response only.
  EXPECT_EQ(LastPrompt(),
            "[user]hi\n[assistant]~hm~I look.@look:{}\n[tool]seen\n"
            "[assistant]");
  const Answer third =
      Respond(R"({"previous_response_id":")" +
              second.json()["id"].get<std::string>() + R"(","input":"more"})");
  ASSERT_EQ(third.status, 200);
  EXPECT_EQ(LastPrompt(),
            "[user]hi\n[assistant]~hm~I look.@look:{}\n[tool]seen\n"
            "[assistant]done\n[user]more\n[assistant]");
}

TEST_F(ResponsesTest, AResponseThatIsNotThereIsTheClientsError) {
  Start();
  ExpectError(Respond(R"({"input":"a","previous_response_id":"resp_x"})"), 400,
              "previous_response_not_found");
  const Json unkept = Respond(R"({"input":"a","store":false})").json();
  ExpectError(Respond(R"({"input":"a","previous_response_id":")" +
                      unkept["id"].get<std::string>() + "\"}"),
              400, "previous_response_not_found");
  const Json salted = Respond(R"({"input":"a","cache_salt":"me"})").json();
  const std::string next = R"({"input":"a","previous_response_id":")" +
                           salted["id"].get<std::string>() + "\"";
  ExpectError(Respond(next + "}"), 400, "previous_response_not_found");
  EXPECT_EQ(Respond(next + R"(,"cache_salt":"me"})").status, 200);
}

TEST_F(ResponsesTest, AStreamIsTheApisEventsAndAddsUp) {
  engine_.SetScript(
      {.pieces = {"~h", "m~a", "b@lo", "ok:{\"z\"", ":1}@stop:{}"}});
  Start();
  const std::string body =
      R"({"input":"hi","tools":[{"type":"function","name":"look"},
          {"type":"function","name":"stop"}])";
  const Json whole = Respond(body + "}").json();
  const Answer answer = Respond(body + R"(,"stream":true})");
  ASSERT_EQ(answer.status, 200);
  const auto events = Events(answer.body);
  std::string types;
  std::string sums;
  for (const Json& event : events) {
    types += event["type"].get<std::string>() + " ";
    sums += event.value("delta", "");
  }
  EXPECT_TRUE(
      types.starts_with("response.created response.in_progress "
                        "response.output_item.added "
                        "response.content_part.added "
                        "response.reasoning_text.delta "));
  EXPECT_TRUE(types.ends_with(
      "response.function_call_arguments.done response.output_item.done "
      "response.completed "));
  EXPECT_EQ(sums, R"(hmab{"z":1}{})");
  Json streamed = events.back()["response"];
  ASSERT_EQ(streamed["output"].size(), whole["output"].size());
  for (size_t i = 0; i < whole["output"].size(); ++i) {
    Json item = whole["output"][i];
    for (const char* id : {"id", "call_id"}) {
      item.erase(id);
      streamed["output"][i].erase(id);
    }
    EXPECT_EQ(streamed["output"][i], item);
  }
  // It can be gone on with like any other.
  EXPECT_EQ(Respond(R"({"input":"a","previous_response_id":")" +
                    streamed["id"].get<std::string>() + "\"}")
                .status,
            200);
}

TEST_F(ResponsesTest, ACutReplyIsIncompleteAndAnEmptyOneHasItsMessage) {
  engine_.SetScript({.pieces = {"a"}, .reason = engine::FinishReason::kLength});
  Start();
  const Json cut = Respond(R"({"input":"a"})").json();
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(
      Events(Respond(R"({"input":"a","stream":true})").body).back()["type"],
      "response.incomplete");
  engine_.SetScript({});
  EXPECT_EQ(Respond(R"({"input":"a"})").json()["output"].size(), 1u);
  EXPECT_EQ(Events(Respond(R"({"input":"a","stream":true})").body)
                .back()["response"]["output"]
                .size(),
            1u);
}

TEST_F(ResponsesTest, AFailureInAStreamIsAnEvent) {
  engine_.SetScript(
      {.pieces = {"a"}, .failure = absl::InternalError("ggml failed")});
  Start();
  const auto events = Events(Respond(R"({"input":"a","stream":true})").body);
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_NE(
      events.back()["response"]["error"]["message"].get<std::string>().find(
          "ggml failed"),
      std::string::npos);
}

}  // namespace
}  // namespace everwarm::server
