// Anthropic's API over a fake engine.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/anthropic_request.h"
#include "server/api_error.h"
#include "testing/server_harness.h"

namespace everwarm::server {
namespace {

using models::ToolChoice;

absl::StatusOr<MessagesRequest> Parse(
    const std::string& more,
    const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  return ParseMessagesRequest(
      Json::parse("{\"max_tokens\":9,\"messages\":" + messages + more + "}"),
      false);
}

TEST(AnthropicRequestTest, TheSystemAndBlocksBecomeMessages) {
  const auto request = Parse(R"(,"system":[{"type":"text","text":"a"},
      {"type":"text","text":"b","cache_control":{"type":"ephemeral"}}])",
                             R"([
      {"role":"user","content":[{"type":"text","text":"c"},
                                {"type":"text","text":"d"}]},
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"redacted_thinking","data":"x"},
        {"type":"text","text":"e"},
        {"type":"tool_use","id":"t1","name":"look","input":{"z":1,"a":2}}]},
      {"role":"user","content":[
        {"type":"text","text":"f"},
        {"type":"tool_result","tool_use_id":"t1","content":[
          {"type":"text","text":"g"}]}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1"}]}])");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& messages = request->prompt.messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[0].content, "a\nb");
  EXPECT_EQ(messages[1].content, "c\nd");
  EXPECT_EQ(messages[2].reasoning, "hm");
  EXPECT_EQ(messages[2].content, "e");
  EXPECT_EQ(messages[2].tool_calls[0].arguments, R"({"z":1,"a":2})");
  // A result comes before what is said with it.
  EXPECT_EQ(messages[3].role, "tool");
  EXPECT_EQ(messages[3].content, "g");
  EXPECT_EQ(messages[3].tool_name, "look");
  EXPECT_EQ(messages[4].content, "f");
  EXPECT_EQ(messages[5].role, "tool");
  EXPECT_EQ(messages[5].content, "");
  EXPECT_TRUE(request->marks_cache);
  EXPECT_FALSE(Parse("")->marks_cache);
}

TEST(AnthropicRequestTest, OptionsToolsAndChoicesAreRead) {
  const auto request = Parse(R"(,"temperature":0.5,"top_k":3,"stream":true,
      "stop_sequences":["x"],"thinking":{"type":"enabled","budget_tokens":100},
      "metadata":{"user_id":"u"},
      "tools":[{"name":"look","description":"Looks.","input_schema":
        {"type":"object","properties":{"z":{}}}},{"name":"stop",
        "type":"custom","input_schema":{}}],
      "tool_choice":{"type":"tool","name":"stop",
                     "disable_parallel_tool_use":true})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.max_tokens, 9u);
  EXPECT_EQ(request->options.stops, std::vector<std::string>{"x"});
  EXPECT_TRUE(request->options.stream);
  EXPECT_EQ(request->options.sampling.top_k, 3);
  EXPECT_TRUE(request->prompt.thinking);
  EXPECT_FALSE(Parse("")->prompt.thinking);
  ASSERT_EQ(request->prompt.tools.size(), 2u);
  EXPECT_EQ(request->prompt.tools[0].parameters,
            R"({"type":"object","properties":{"z":{}}})");
  EXPECT_EQ(request->prompt.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request->prompt.required_tool, "stop");
  EXPECT_FALSE(request->prompt.parallel_tool_calls);
}

TEST(AnthropicRequestTest, TheFormOfTheReplyAndTheEffortAreRead) {
  const auto request = Parse(R"(,"output_config":{"effort":"low","format":
      {"type":"json_schema","schema":{"type":"object"}}})",
                             R"([{"role":"user","content":"a"},
      {"role":"system","content":"b"}])");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt.json_schema, R"({"type":"object"})");
  EXPECT_EQ(request->prompt.template_arguments.at("reasoning_effort"),
            "\"low\"");
  EXPECT_EQ(request->prompt.messages[1].role, "system");
}

TEST(AnthropicRequestTest, ALastWordOfTheAssistantIsGoneOnWith) {
  EXPECT_TRUE(Parse("", R"([{"role":"user","content":"a"},
      {"role":"assistant","content":"b"}])")
                  ->prompt.continue_last);
  // Nothing said is nothing to go on with.
  const auto empty = Parse("", R"([{"role":"user","content":"a"},
      {"role":"assistant","content":[]}])");
  EXPECT_FALSE(empty->prompt.continue_last);
  EXPECT_EQ(empty->prompt.messages.size(), 1u);
}

TEST(AnthropicRequestTest, WhatIsWrongNamesItsField) {
  const std::pair<const char*, const char*> kMessages[] = {
      {"messages", "[]"},
      {"messages", "{}"},
      {"messages", "\"hi\""},
      {"messages[0]", "[7]"},
      {"messages[0].role", R"([{"content":"a"}])"},
      {"messages[0].role", R"([{"role":"robot","content":"a"}])"},
      {"messages[0].content", R"([{"role":"user","content":7}])"},
      {"messages[0].content[0]", R"([{"role":"user","content":["a"]}])"},
      {"messages[0].content[0]",
       R"([{"role":"user","content":[{"type":"image","source":{}}]}])"},
      {"messages[0].content[0]",
       R"([{"role":"user","content":[{"type":"tool_use","id":"a"}]}])"},
      {"messages[0].content[0].text",
       R"([{"role":"user","content":[{"type":"text","text":7}]}])"},
      {"messages[0].content[0].tool_use_id",
       R"([{"role":"user","content":[{"type":"tool_result"}]}])"},
      {"messages[0].content[0]", R"([{"role":"assistant","content":[
          {"type":"tool_use","id":"a","name":"f","input":[]}]}])"},
      {"messages", R"([{"role":"assistant","content":[
          {"type":"tool_use","id":"a","name":"f","input":{}}]}])"},
  };
  for (const auto& [param, messages] : kMessages) {
    const auto request = Parse("", messages);
    ASSERT_FALSE(request.ok()) << messages;
    EXPECT_EQ(RefusalError(request.status()).param, param) << messages;
  }
  const std::pair<const char*, const char*> kFields[] = {
      {"system", R"("system":7)"},
      {"system[0]", R"("system":[{"type":"image"}])"},
      {"stop_sequences", R"("stop_sequences":[7])"},
      {"tools[0]", R"("tools":[{"name":"f","type":"web_search_20250305"}])"},
      {"tools[0]", R"("tools":[{"input_schema":{}}])"},
      {"tools[0].input_schema", R"("tools":[{"name":"f","input_schema":7}])"},
      {"tool_choice", R"("tool_choice":"auto")"},
      {"tool_choice", R"("tool_choice":{"type":"any"})"},
      {"tool_choice", R"("tool_choice":{"type":"tool","name":"nobody"})"},
      {"thinking", R"("thinking":true)"},
      {"output_config", R"("output_config":7)"},
      {"output_config.format", R"("output_config":{"format":{"type":"x"}})"},
      {"output_config.format.schema",
       R"("output_config":{"format":{"type":"json_schema",
          "schema":{"type":"array","uniqueItems":true}}})"},
      {"tools[0].input_schema", R"("tools":[{"name":"f","strict":true,
          "input_schema":{"type":"object","minProperties":1}}])"},
      {"temperature", R"("temperature":"hot")"},
      {"stream", R"("stream":1)"},
  };
  for (const auto& [param, field] : kFields) {
    const auto request = Parse(std::string(",") + field);
    ASSERT_FALSE(request.ok()) << field;
    EXPECT_EQ(RefusalError(request.status()).param, param) << field;
  }
  for (const char* number : {"0", "-1", "1e18", "\"5\"", "1.5", "null"}) {
    const auto request = ParseMessagesRequest(
        Json::parse(std::string(R"({"messages":[{"role":"user",
            "content":"a"}],"max_tokens":)") +
                    number + "}"),
        false);
    ASSERT_FALSE(request.ok()) << number;
    EXPECT_EQ(RefusalError(request.status()).param, "max_tokens") << number;
  }
}

class AnthropicTest : public ServerFixture {
 protected:
  Answer Messages(const std::string& more = "") {
    return Post(
        "/v1/messages",
        R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}])" +
            more + "}");
  }
  // Name and JSON of each event.
  static std::vector<std::pair<std::string, Json>> Events(
      const std::string& body) {
    std::vector<std::pair<std::string, Json>> events;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      const size_t line = body.find("\ndata: ", at);
      EXPECT_EQ(body.substr(at, 7), "event: ");
      events.emplace_back(body.substr(at + 7, line - at - 7),
                          Json::parse(body.substr(line + 7, end - line - 7)));
      EXPECT_EQ(events.back().first, events.back().second["type"]);
      at = end + 2;
    }
    return events;
  }
};

TEST_F(AnthropicTest, AReplyHasTheApisForm) {
  FakeReplyScript script = {.pieces = {"hel", "lo"}};
  script.usage.reuse = {.cached = 5, .ram = 3, .tier = 2, .matched = 5};
  engine_.SetScript(script);
  Start();
  const Answer answer = Messages(R"(,"system":"Be brief.")");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["model"], "fake-model");
  EXPECT_EQ(json["content"],
            Json::parse(R"([{"type":"text","text":"hello"}])"));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  const engine::Request request = engine_.last_request();
  EXPECT_EQ(TextOf(request.prompt), "[system]Be brief.\n[user]hi\n[assistant]");
  const auto prompt = request.prompt.size();
  EXPECT_EQ(json["usage"]["input_tokens"], prompt - 5);
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], 5);
  EXPECT_EQ(json["usage"]["cache_creation_input_tokens"], 0);
  EXPECT_EQ(json["usage"]["output_tokens"], 2);
  // Marked, what was computed counts as written.
  const Json marked = Messages(
                          R"(,"system":[{"type":"text","text":"Be brief.",
             "cache_control":{"type":"ephemeral"}}])")
                          .json();
  EXPECT_EQ(marked["usage"]["input_tokens"], 0);
  EXPECT_EQ(marked["usage"]["cache_creation_input_tokens"], prompt - 5);
}

TEST_F(AnthropicTest, AStreamIsTheApisEvents) {
  engine_.SetScript({.pieces = {"~h", "m~a", "b@lo", "ok:{\"z\"", ":1}"}});
  Start();
  const Answer answer = Messages(
      R"(,"stream":true,"thinking":{"type":"enabled","budget_tokens":1},
         "tools":[{"name":"look","input_schema":{"type":"object"}}])");
  ASSERT_EQ(answer.status, 200) << answer.body;
  std::string names;
  std::string thinking;
  std::string text;
  std::string input;
  const auto events = Events(answer.body);
  for (const auto& [name, json] : events) {
    names += name + " ";
    if (name == "content_block_delta") {
      thinking += json["delta"].value("thinking", "");
      text += json["delta"].value("text", "");
      input += json["delta"].value("partial_json", "");
    }
  }
  EXPECT_TRUE(names.starts_with("message_start content_block_start "));
  EXPECT_TRUE(
      names.ends_with("content_block_stop message_delta message_stop "));
  EXPECT_EQ(thinking, "hm");
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(input, R"({"z":1})");
  std::vector<Json> blocks;
  int open = -1;
  for (const auto& [name, json] : events) {
    if (name == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = json["index"].get<int>();
      EXPECT_EQ(open, static_cast<int>(blocks.size()));
      blocks.push_back(json["content_block"]);
    } else if (name == "content_block_stop") {
      EXPECT_EQ(json["index"], open);
      open = -1;
    } else if (name == "message_delta") {
      EXPECT_EQ(json["delta"]["stop_reason"], "tool_use");
      EXPECT_EQ(json["usage"]["output_tokens"], 5);
    }
  }
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0]["type"], "thinking");
  EXPECT_EQ(blocks[1]["type"], "text");
  EXPECT_EQ(blocks[2]["type"], "tool_use");
  EXPECT_EQ(blocks[2]["name"], "look");
  EXPECT_TRUE(blocks[2]["id"].get<std::string>().starts_with("toolu_"));
}

TEST_F(AnthropicTest, CallsAreBlocksWithTheirInput) {
  engine_.SetScript({.pieces = {R"(~hm~@look:{"z":1,"a":[2]}@stop:)"}});
  Start();
  const Json json =
      Messages(R"(,"tools":[{"name":"look"},{"name":"stop"}])").json();
  EXPECT_EQ(json["stop_reason"], "tool_use");
  ASSERT_EQ(json["content"].size(), 3u);
  EXPECT_EQ(json["content"][0]["thinking"], "hm");
  EXPECT_EQ(json["content"][1]["input"], Json::parse(R"({"z":1,"a":[2]})"));
  EXPECT_EQ(json["content"][2]["input"], Json::object());
}

TEST_F(AnthropicTest, TheReasonsOfAnEndAreTheApis) {
  engine_.SetScript({.pieces = {"a"}, .reason = engine::FinishReason::kLength});
  Start();
  EXPECT_EQ(Messages().json()["stop_reason"], "max_tokens");
  engine_.SetScript({.pieces = {"a"}, .stop = "END"});
  const Json stopped = Messages(R"(,"stop_sequences":["END"])").json();
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "END");
  // The template's own is none of the client's.
  engine_.SetScript({.pieces = {"a"}, .stop = "[user]"});
  const Json own = Messages(R"(,"stop_sequences":["END"])").json();
  EXPECT_EQ(own["stop_reason"], "end_turn");
  EXPECT_TRUE(own["stop_sequence"].is_null());
}

TEST_F(AnthropicTest, TokensAreCountedWithoutAReply) {
  Start();
  const Answer answer =
      Post("/v1/messages/count_tokens",
           R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json(), Json::parse(R"({"input_tokens":20})"));
  EXPECT_TRUE(engine_.requests().empty());
}

TEST_F(AnthropicTest, ErrorsHaveTheApisFormOnEveryWay) {
  Server::Config config = AnyPort();
  config.api_key = "secret";
  StartLoading(config);
  const httplib::Headers key = {{"X-Api-Key", "secret"}};
  const auto type = [](const Answer& answer) {
    EXPECT_EQ(answer.json()["type"], "error") << answer.body;
    EXPECT_FALSE(answer.json()["error"]["message"].get<std::string>().empty());
    return answer.json()["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(Post("/v1/messages", "{}", key)), "overloaded_error");
  server_->SetReady(&engine_, &text_front_);
  EXPECT_EQ(type(Post("/v1/messages", "{}")), "authentication_error");
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    for (const char* body : {"{}", "", "{", "[]", "\xff", "{\"messages\":7}"}) {
      const Answer answer = Post(path, body, key);
      EXPECT_EQ(answer.status, 400) << body;
      EXPECT_EQ(type(answer), "invalid_request_error");
    }
  }
  EXPECT_EQ(type(Post("/v1/messages/nothing", "{}", key)), "not_found_error");
  engine_.SetRefusal(absl::ResourceExhaustedError("32 requests wait"));
  const std::string body =
      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_EQ(type(Post("/v1/messages", body, key)), "rate_limit_error");
  engine_.SetRefusal(absl::OkStatus());
  engine_.SetScript({.failure = absl::InternalError("ggml failed")});
  EXPECT_EQ(type(Post("/v1/messages", body, key)), "api_error");
  engine_.SetScript(
      {.pieces = {"a"}, .failure = absl::InternalError("ggml failed")});
  const Answer stream =
      Post("/v1/messages",
           body.substr(0, body.size() - 1) + ",\"stream\":true}", key);
  EXPECT_EQ(Events(stream.body).back().first, "error");
  engine_.set_context_size(10);
  const Answer full = Post("/v1/messages", body, key);
  EXPECT_EQ(full.status, 400);
  EXPECT_NE(full.body.find("10 tokens"), std::string::npos) << full.body;
}

}  // namespace
}  // namespace everwarm::server
