// Bodies that were valid once: whatever happens to their bytes, they are parsed
// or refused as the client's error.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "server/anthropic_request.h"
#include "server/api_error.h"
#include "server/openai_chat_request.h"
#include "server/openai_completions_request.h"
#include "server/responses_request.h"

namespace everwarm::server {
namespace {

// Status of the first step that refuses the body; OK: all took it.
template <typename Parse>
absl::Status StatusOf(const std::string& body, Parse parse) {
  const auto json = ParseJsonObject(body);
  return json.ok() ? parse(*json).status() : json.status();
}

std::string Mutate(std::string body, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   "\"",
                                                   ",",
                                                   ":",
                                                   "null",
                                                   "1e999",
                                                   "-1",
                                                   "1e18",
                                                   "NaN",
                                                   "true",
                                                   "[]",
                                                   "{}",
                                                   "\\u0000",
                                                   "\xff",
                                                   "\xc3",
                                                   "\\ud8",
                                                   "\\",
                                                   "0.5",
                                                   "\"\"",
                                                   "stop",
                                                   "\"tools\":[7],",
                                                   "2147483648",
                                                   "18446744073709551616",
                                                   "-9223372036854775809"};
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits && !body.empty(); ++i) {
    const size_t at = random() % body.size();
    const std::string& piece = kPieces[random() % kPieces.size()];
    switch (random() % 4) {
      case 0:
        body[at] = static_cast<char>(random());
        break;
      case 1:
        body.erase(at, 1 + random() % 8);
        break;
      case 2:
        body.insert(at, piece);
        break;
      default:
        body.replace(at, random() % 12, piece);
        break;
    }
  }
  return body;
}

TEST(RequestMutationTest, EveryBodyIsTakenOrRefusedAsTheClientsError) {
  const std::vector<std::string> seeds = {
      R"({"model":"m","messages":[{"role":"system","content":"a"},
          {"role":"user","content":[{"type":"text","text":"b"}]},
          {"role":"assistant","content":null,"tool_calls":[
            {"id":"c","function":{"name":"f","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"c","content":"d"}],
          "tools":[{"type":"function","function":{"name":"f",
            "parameters":{"type":"object"}}}],"tool_choice":"auto",
          "logprobs":true,"top_logprobs":2,"logit_bias":{"5":1},"n":2,
          "response_format":{"type":"json_object"},
          "max_tokens":5,"stop":["x","y"],"stream":true,"seed":-7,
          "stream_options":{"include_usage":true},"temperature":0.5})",
      R"({"prompt":["Rivers:"],"max_completion_tokens":3,"top_p":0.1,
          "top_k":4,"logprobs":null,"echo":false,"n":1,"cache_salt":"s"})",
      R"({"prompt":[[1,2,3]],"min_p":0.1,"repeat_penalty":1.1})",
      R"({"max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[
          {"role":"user","content":"a"},{"role":"assistant","content":[
            {"type":"thinking","thinking":"t","signature":""},
            {"type":"tool_use","id":"t","name":"f","input":{"a":[1]}}]},
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
            "content":[{"type":"text","text":"r"}]}]}],
          "tools":[{"name":"f","input_schema":{"type":"object"}}],
          "tool_choice":{"type":"any"},"thinking":{"type":"enabled"}})",
      R"({"input":[{"role":"user","content":"a"},
          {"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]},
          {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
          {"type":"function_call_output","call_id":"c","output":"r"}],
          "tools":[{"type":"function","name":"f"}],"store":true,
          "text":{"format":{"type":"json_object"}},"max_output_tokens":5})",
      R"({"content":"a\ud83d\ude00","add_special":true,"tokens":[1,2]})"};
  std::mt19937 random(20260101);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::string body = Mutate(seeds[random() % seeds.size()], random);
    for (const absl::Status& status :
         {StatusOf(body, ParseChatRequest),
          StatusOf(body, ParseCompletionRequest),
          StatusOf(body,
                   [](const Json& json) {
                     return ParseMessagesRequest(json, false);
                   }),
          StatusOf(body, ParseResponsesRequest),
          StatusOf(body, ParseTokenizeRequest),
          StatusOf(body, ParseDetokenizeRequest)}) {
      if (status.ok()) {
        ++taken;
        continue;
      }
      ++refused;
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << status << body;
      const ApiError error = RefusalError(status);
      ASSERT_FALSE(error.message.empty());
      for (const std::string& text :
           {ErrorBody(error), AnthropicErrorBody(error)}) {
        ASSERT_FALSE(Json::parse(text, nullptr, false).is_discarded()) << body;
      }
    }
  }
  // The mutations are neither all harmless nor all deadly.
  EXPECT_GT(taken, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace everwarm::server
