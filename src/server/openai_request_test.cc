#include "server/openai_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api_error.h"

namespace everwarm::server {
namespace {

Json Chat(const std::string& more = "") {
  const std::string text =
      R"({"messages":[{"role":"user","content":"hi"}])" + more + "}";
  return Json::parse(text);
}

Json Text(const std::string& more = "") {
  return Json::parse(R"({"prompt":"Rivers:")" + more + "}");
}

// The error of a chat body, or one that says it was accepted.
ApiError ChatError(const Json& body) {
  const auto request = ParseChatRequest(body);
  if (request.ok()) {
    return {.http_status = 200, .message = "accepted"};
  }
  return RefusalError(request.status());
}

ApiError TextError(const Json& body) {
  const auto request = ParseCompletionRequest(body);
  if (request.ok()) {
    return {.http_status = 200, .message = "accepted"};
  }
  return RefusalError(request.status());
}

TEST(OpenAiRequestTest, DefaultsAreTheSamplersOwn) {
  const auto request = ParseChatRequest(Chat());
  ASSERT_TRUE(request.ok()) << request.status();
  const GenerationOptions& options = request->options;
  EXPECT_FALSE(options.stream);
  EXPECT_FALSE(options.include_usage);
  EXPECT_FALSE(options.max_tokens.has_value());
  EXPECT_TRUE(options.stops.empty());
  EXPECT_EQ(options.name_space, "");
  EXPECT_FALSE(options.sampling.seed.has_value());
  EXPECT_FLOAT_EQ(options.sampling.temperature, 0.8f);
  EXPECT_EQ(options.sampling.top_k, 40);
}

TEST(OpenAiRequestTest, EveryFieldReachesTheOptions) {
  const auto request = ParseChatRequest(Chat(R"(,"stream":true,
      "stream_options":{"include_usage":true},"max_tokens":7,"temperature":0,
      "top_p":0.5,"top_k":3,"min_p":0.25,"seed":11,"stop":["a","b"],
      "frequency_penalty":-1.5,"presence_penalty":2,"repeat_penalty":1.5,
      "repeat_last_n":9,"cache_salt":"tenant","ignore_eos":true,"model":"x"
      )"));
  ASSERT_TRUE(request.ok()) << request.status();
  const GenerationOptions& options = request->options;
  EXPECT_TRUE(options.stream);
  EXPECT_TRUE(options.include_usage);
  EXPECT_EQ(options.max_tokens, 7u);
  EXPECT_EQ(options.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.name_space, "tenant");
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.sampling.temperature, 0.0f);
  EXPECT_EQ(options.sampling.top_p, 0.5f);
  EXPECT_EQ(options.sampling.top_k, 3);
  EXPECT_EQ(options.sampling.min_p, 0.25f);
  EXPECT_EQ(options.sampling.seed, 11u);
  EXPECT_EQ(options.sampling.frequency_penalty, -1.5f);
  EXPECT_EQ(options.sampling.presence_penalty, 2.0f);
  EXPECT_EQ(options.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(options.sampling.repeat_last_n, 9);
}

TEST(OpenAiRequestTest, NullMeansAbsent) {
  const auto request = ParseChatRequest(Chat(R"(,"stream":null,
      "stream_options":null,"max_tokens":null,"max_completion_tokens":null,
      "temperature":null,"top_p":null,"seed":null,"stop":null,"n":null,
      "tools":null,"response_format":null,"logprobs":null,"model":null,
      "cache_salt":null)"));
  EXPECT_TRUE(request.ok()) << request.status();
}

TEST(OpenAiRequestTest, UnknownFieldsAreIgnored) {
  EXPECT_EQ(ChatError(Chat(R"(,"user":"me","metadata":{"a":[1]},"store":true,
      "service_tier":"auto","reasoning_effort":"low","x":1e300)"))
                .http_status,
            200);
}

TEST(OpenAiRequestTest, TheNewerNameOfMaxTokensWins) {
  EXPECT_EQ(ParseChatRequest(Chat(R"(,"max_completion_tokens":3)"))
                ->options.max_tokens,
            3u);
  EXPECT_EQ(
      ParseChatRequest(Chat(R"(,"max_completion_tokens":3,"max_tokens":9)"))
          ->options.max_tokens,
      3u);
  EXPECT_EQ(ParseChatRequest(Chat(R"(,"max_tokens":0)"))->options.max_tokens,
            0u);
  EXPECT_EQ(ParseChatRequest(Chat(R"(,"max_tokens":5.0)"))->options.max_tokens,
            5u);
}

TEST(OpenAiRequestTest, AbsurdNumbersNameTheirField) {
  const struct {
    const char* field;
    const char* value;
  } kCases[] = {
      {"max_tokens", "1e18"},
      {"max_tokens", "-1"},
      {"max_tokens", "\"5\""},
      {"max_tokens", "1.5"},
      {"max_tokens", "true"},
      {"max_tokens", "[]"},
      {"max_tokens", "18446744073709551615"},
      {"max_completion_tokens", "2147483648"},
      {"temperature", "-0.1"},
      {"temperature", "1e300"},
      {"temperature", "\"hot\""},
      {"top_p", "1.01"},
      {"top_p", "-1"},
      {"min_p", "2"},
      {"top_k", "-2"},
      {"top_k", "0.5"},
      {"frequency_penalty", "2.5"},
      {"presence_penalty", "-2.5"},
      {"repeat_penalty", "0"},
      {"repeat_last_n", "-1"},
      {"seed", "\"x\""},
      {"seed", "1e30"},
      {"n", "0"},
      {"n", "2"},
      {"best_of", "2"},
      {"stream", "1"},
      {"stream", "\"true\""},
      {"stream_options", "true"},
      {"model", "7"},
      {"cache_salt", "7"},
      {"stop", "7"},
      {"stop", "[\"a\",7]"},
      {"stop", "{}"},
      {"ignore_eos", "0"},
  };
  for (const auto& test : kCases) {
    const std::string field = test.field;
    const std::string more = ",\"" + field + "\":" + test.value;
    const ApiError error = ChatError(Chat(more));
    EXPECT_EQ(error.http_status, 400) << more;
    EXPECT_EQ(error.param, field) << more;
    EXPECT_EQ(error.type, "invalid_request_error") << more;
    EXPECT_NE(error.message.find(field), std::string::npos) << error.message;
    EXPECT_EQ(TextError(Text(more)).param, field) << more;
  }
}

TEST(OpenAiRequestTest, WhatWeDoNotDoIsRefusedByName) {
  const struct {
    const char* field;
    const char* value;
  } kCases[] = {
      {"tools", R"([{"type":"function"}])"},
      {"functions", R"([{"name":"f"}])"},
      {"tool_choice", R"("required")"},
      {"tool_choice", R"({"type":"function"})"},
      {"response_format", R"({"type":"json_object"})"},
      {"response_format", R"({"type":"json_schema","json_schema":{}})"},
      {"logprobs", "true"},
      {"logprobs", "0"},
      {"top_logprobs", "3"},
      {"logit_bias", R"({"50":-100})"},
      {"modalities", R"(["text","audio"])"},
      {"grammar", R"("root ::= x")"},
      {"echo", "true"},
      {"suffix", R"("end")"},
  };
  for (const auto& test : kCases) {
    const std::string field = test.field;
    const std::string more = ",\"" + field + "\":" + test.value;
    const ApiError error = ChatError(Chat(more));
    EXPECT_EQ(error.http_status, 400) << more;
    EXPECT_EQ(error.param, field) << more;
    EXPECT_EQ(error.code, "unsupported") << more;
    EXPECT_EQ(TextError(Text(more)).param, field) << more;
  }
}

TEST(OpenAiRequestTest, HarmlessValuesOfTheSameFieldsAreTaken) {
  EXPECT_EQ(ChatError(Chat(R"(,"tools":[],"tool_choice":"none","n":1,
      "response_format":{"type":"text"},"logprobs":false,"top_logprobs":0,
      "logit_bias":{},"modalities":["text"],"echo":false,"suffix":"")"))
                .message,
            "accepted");
}

TEST(OpenAiRequestTest, StopIsAStringOrUpToSixteen) {
  EXPECT_EQ(ParseChatRequest(Chat(R"(,"stop":"x")"))->options.stops,
            std::vector<std::string>{"x"});
  std::string sixteen = "\"s\"";
  for (int i = 1; i < 16; ++i) {
    sixteen += ",\"s\"";
  }
  EXPECT_EQ(ParseChatRequest(Chat(",\"stop\":[" + sixteen + "]"))
                ->options.stops.size(),
            16u);
  EXPECT_EQ(ChatError(Chat(",\"stop\":[" + sixteen + ",\"s\"]")).param, "stop");
}

TEST(OpenAiRequestTest, AnEmptyStopStringStopsNothing) {
  EXPECT_TRUE(
      ParseChatRequest(Chat(R"(,"stop":["",""])"))->options.stops.empty());
  EXPECT_TRUE(ParseChatRequest(Chat(R"(,"stop":"")"))->options.stops.empty());
}

TEST(OpenAiRequestTest, EverySeedMeansSomethingFixedExceptMinusOne) {
  const auto seed = [](const std::string& text) {
    return ParseChatRequest(Chat(",\"seed\":" + text))->options.sampling.seed;
  };
  EXPECT_EQ(seed("0"), 0u);
  EXPECT_FALSE(seed("-1").has_value());
  // The sampler takes this number for "a random one".
  EXPECT_EQ(seed("4294967295"), 4294967294u);
  EXPECT_TRUE(seed("-9223372036854775808").has_value());
  EXPECT_NE(seed("4294967297"), seed("1"));
}

TEST(OpenAiRequestTest, APromptIsTextOrTokensOrABatchOfOne) {
  using Tokens = std::vector<TokenId>;
  const auto prompt = [](const char* text) {
    return ParseCompletionRequest(
               Json::parse(std::string("{\"prompt\":") + text + "}"))
        ->prompt;
  };
  EXPECT_EQ(std::get<std::string>(prompt(R"("a")")), "a");
  EXPECT_EQ(std::get<std::string>(prompt(R"(["a"])")), "a");
  EXPECT_EQ(std::get<Tokens>(prompt("[1,2,3]")), (Tokens{1, 2, 3}));
  EXPECT_EQ(std::get<Tokens>(prompt("[[1,2,3]]")), (Tokens{1, 2, 3}));
}

TEST(OpenAiRequestTest, AnEmptyOrStrangePromptIsRefused) {
  for (const char* text :
       {R"({})", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":[]})",
        R"({"prompt":[""]})", R"({"prompt":[[]]})", R"({"prompt":["a","b"]})",
        R"({"prompt":[[1],[2]]})", R"({"prompt":7})", R"({"prompt":{}})",
        R"({"prompt":[1,"a"]})", R"({"prompt":[1,-1]})", R"({"prompt":[1.5]})",
        R"({"prompt":[1,4294967296]})", R"({"prompt":[true]})",
        R"({"prompt":[{}]})", R"({"prompt":[[["a"]]]})"}) {
    const ApiError error = TextError(Json::parse(text));
    EXPECT_EQ(error.http_status, 400) << text;
    EXPECT_EQ(error.param, "prompt") << text;
  }
}

TEST(OpenAiRequestTest, TokenizeTakesThePeersForm) {
  const auto plain = ParseTokenizeRequest(Json::parse(R"({"content":"a"})"));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->content, "a");
  EXPECT_FALSE(plain->add_special);
  EXPECT_TRUE(plain->parse_special);
  const auto full = ParseTokenizeRequest(Json::parse(
      R"({"content":"","add_special":true,"parse_special":false})"));
  ASSERT_TRUE(full.ok());
  EXPECT_TRUE(full->add_special);
  EXPECT_FALSE(full->parse_special);
  EXPECT_FALSE(ParseTokenizeRequest(Json::parse("{}")).ok());
  EXPECT_FALSE(ParseTokenizeRequest(Json::parse(R"({"content":7})")).ok());
}

TEST(OpenAiRequestTest, DetokenizeWantsTokenIds) {
  EXPECT_EQ(*ParseDetokenizeRequest(Json::parse(R"({"tokens":[5,6]})")),
            (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(ParseDetokenizeRequest(Json::parse(R"({"tokens":[]})"))->empty());
  for (const char* text : {R"({})", R"({"tokens":"a"})", R"({"tokens":[-1]})",
                           R"({"tokens":["a"]})", R"({"tokens":{"a":1}})"}) {
    EXPECT_FALSE(ParseDetokenizeRequest(Json::parse(text)).ok()) << text;
  }
}

}  // namespace
}  // namespace everwarm::server
