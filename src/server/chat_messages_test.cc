#include "server/chat_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "server/api_error.h"

namespace everwarm::server {
namespace {

absl::StatusOr<std::vector<models::ChatMessage>> Parse(
    const std::string& messages) {
  return ParseChatMessages(Json::parse("{\"messages\":" + messages + "}"));
}

ApiError ErrorOf(const std::string& messages) {
  const auto parsed = Parse(messages);
  return parsed.ok() ? ApiError{.http_status = 200}
                     : RefusalError(parsed.status());
}

TEST(ChatMessagesTest, RolesKeepTheirNamesAndDeveloperIsTheSystem) {
  const auto messages = Parse(R"([{"role":"system","content":"a"},
      {"role":"developer","content":"b"},{"role":"user","content":"c"},
      {"role":"assistant","content":"d"},{"role":"tool","content":"e"}])");
  ASSERT_TRUE(messages.ok()) << messages.status();
  std::string roles;
  std::string contents;
  for (const models::ChatMessage& message : *messages) {
    roles += message.role + " ";
    contents += message.content;
  }
  EXPECT_EQ(roles, "system system user assistant tool ");
  EXPECT_EQ(contents, "abcde");
}

TEST(ChatMessagesTest, EveryFormOfNothingIsTheSameEmptyText) {
  for (const char* message :
       {R"({"role":"assistant"})", R"({"role":"assistant","content":null})",
        R"({"role":"assistant","content":""})",
        R"({"role":"assistant","content":[]})",
        R"({"role":"assistant","content":null,"tool_calls":[]})",
        R"({"role":"assistant","content":null,"tool_calls":null})"}) {
    const auto messages = Parse(std::string("[") + message + "]");
    ASSERT_TRUE(messages.ok()) << message << messages.status();
    EXPECT_EQ(messages->front().content, "") << message;
  }
}

TEST(ChatMessagesTest, TextPartsAreJoinedByANewLine) {
  const auto messages = Parse(R"([{"role":"user","content":[
      {"type":"text","text":"one"},{"type":"text","text":"two"}]}])");
  ASSERT_TRUE(messages.ok()) << messages.status();
  EXPECT_EQ(messages->front().content, "one\ntwo");
}

TEST(ChatMessagesTest, PartsThatAreNotTextAreRefusedWithTheirPlace) {
  const ApiError image = ErrorOf(R"([{"role":"user","content":[
      {"type":"text","text":"what is this?"},
      {"type":"image_url","image_url":{"url":"data:"}}]}])");
  EXPECT_EQ(image.http_status, 400);
  EXPECT_EQ(image.param, "messages[0].content[1]");
  EXPECT_NE(image.message.find("image_url"), std::string::npos);
  for (const char* part :
       {R"({"type":"input_audio","input_audio":{}})", R"({"type":"file"})",
        R"({"type":7})", R"({"text":"a"})", R"("a")", R"(7)", R"(null)",
        R"({"type":"text"})", R"({"type":"text","text":7})"}) {
    EXPECT_EQ(
        ErrorOf(std::string(R"([{"role":"user","content":[)") + part + "]}]")
            .param,
        "messages[0].content[0]")
        << part;
  }
}

TEST(ChatMessagesTest, CallsAndTheirResultsAreRead) {
  const auto messages = Parse(R"([{"role":"user","content":"a"},
      {"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
        {"id":"c1","type":"function",
         "function":{"name":"look","arguments":"{\"z\":1}"}},
        {"id":"c2","function":{"name":"stop","arguments":""}}]},
      {"role":"tool","tool_call_id":"c2","content":[
        {"type":"text","text":"one"},{"type":"text","text":"two"}]},
      {"role":"tool","tool_call_id":"c1","name":"other","content":"b"},
      {"role":"tool","tool_call_id":"c9","content":null}])");
  ASSERT_TRUE(messages.ok()) << messages.status();
  const models::ChatMessage& call = (*messages)[1];
  EXPECT_EQ(call.content, "");
  EXPECT_EQ(call.reasoning, "hm");
  ASSERT_EQ(call.tool_calls.size(), 2u);
  EXPECT_EQ(call.tool_calls[0].id, "c1");
  EXPECT_EQ(call.tool_calls[0].name, "look");
  EXPECT_EQ(call.tool_calls[0].arguments, "{\"z\":1}");
  EXPECT_EQ((*messages)[2].content, "one\ntwo");
  EXPECT_EQ((*messages)[2].tool_call_id, "c2");
  // The name of the call that it answers, unless it has its own.
  EXPECT_EQ((*messages)[2].tool_name, "stop");
  EXPECT_EQ((*messages)[3].tool_name, "other");
  EXPECT_EQ((*messages)[4].tool_name, "");
}

TEST(ChatMessagesTest, EveryFormOfNothingBesideACallIsTheSame) {
  for (const char* content :
       {"", R"("content":null,)", R"("content":"",)", R"("content":[],)"}) {
    const auto messages =
        Parse(std::string(R"([{"role":"assistant",)") + content +
              R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}])");
    ASSERT_TRUE(messages.ok()) << content << messages.status();
    EXPECT_EQ(messages->front().content, "");
    EXPECT_EQ(messages->front().tool_calls.size(), 1u);
  }
}

TEST(ChatMessagesTest, WrongCallsNameTheirPlace) {
  for (const char* calls :
       {"7", "{}", "[7]", R"([{"id":"1"}])", R"([{"function":7}])",
        R"([{"function":{"arguments":"{}"}}])",
        R"([{"function":{"name":"f","arguments":"{"}}])",
        R"([{"function":{"name":"f","arguments":"[]"}}])",
        R"([{"function":{"name":"f","arguments":{}}}])",
        R"([{"id":7,"function":{"name":"f"}}])"}) {
    const ApiError error = ErrorOf(
        std::string(R"([{"role":"assistant","tool_calls":)") + calls + "}]");
    EXPECT_EQ(error.http_status, 400) << calls;
    EXPECT_TRUE(error.param.starts_with("messages[0].tool_calls"))
        << calls << error.param;
  }
}

TEST(ChatMessagesTest, ArgumentsNestNoDeeperThanABodyMay) {
  models::ToolCall call{"c", "f", "{\"a\":"};
  call.arguments += std::string(90, '[') + std::string(90, ']') + "}";
  EXPECT_TRUE(CheckToolCall(call, "x").ok());
  call.arguments =
      "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_FALSE(CheckToolCall(call, "x").ok());
}

TEST(ChatMessagesTest, WhatIsNoConversationIsRefused) {
  for (const char* messages :
       {"null", "[]", "{}", "\"hi\"", "7", "[7]", "[null]", "[[]]", "[{}]",
        R"([{"content":"a"}])", R"([{"role":null,"content":"a"}])",
        R"([{"role":"robot","content":"a"}])", R"([{"role":7,"content":"a"}])",
        R"([{"role":"","content":"a"}])", R"([{"role":"user","content":7}])",
        R"([{"role":"user","content":{"type":"text"}}])",
        R"([{"role":"user","content":true}])"}) {
    EXPECT_EQ(ErrorOf(messages).http_status, 400) << messages;
  }
  EXPECT_FALSE(ParseChatMessages(Json::object()).ok());
}

TEST(ChatMessagesTest, AnUnknownRoleIsQuotedShort) {
  const ApiError error =
      ErrorOf("[{\"role\":\"" + std::string(10000, 'x') + "\"}]");
  EXPECT_EQ(error.param, "messages[0].role");
  EXPECT_LT(error.message.size(), 300u);
}

}  // namespace
}  // namespace everwarm::server
