#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/openai_chat_request.h"
#include "server/openai_completions_request.h"

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
      {"n", "129"},
      {"n", "1e18"},
      {"n", "\"2\""},
      {"stream", "1"},
      {"stream", "\"true\""},
      {"stream_options", "true"},
      {"model", "7"},
      {"cache_salt", "7"},
      {"stop", "7"},
      {"stop", "[\"a\",7]"},
      {"stop", "{}"},
      {"ignore_eos", "0"},
      {"logit_bias", "7"},
      {"logit_bias", "[]"},
      {"logit_bias", R"({"x":1})"},
      {"logit_bias", R"({"-1":1})"},
      {"logit_bias", R"({"1.5":1})"},
      {"logit_bias", R"({"99999999999":1})"},
      {"logit_bias", R"({"5":101})"},
      {"logit_bias", R"({"5":-1e300})"},
      {"logit_bias", R"({"5":"1"})"},
      {"logit_bias", R"({"5":null})"},
      {"grammar", "7"},
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
  } kChat[] = {
      {"functions", R"([{"name":"f"}])"},    {"function_call", R"("auto")"},
      {"modalities", R"(["text","audio"])"}, {"audio", R"({"voice":"a"})"},
      {"web_search_options", R"({"a":1})"},
  };
  for (const auto& test : kChat) {
    const std::string field = test.field;
    const std::string more = ",\"" + field + "\":" + test.value;
    const ApiError error = ChatError(Chat(more));
    EXPECT_EQ(error.http_status, 400) << more;
    EXPECT_EQ(error.param, field) << more;
    EXPECT_EQ(error.code, "unsupported") << more;
  }
  for (const char* more :
       {R"(,"suffix":"end")", R"(,"best_of":2)", R"(,"n":2,"best_of":3)",
        R"(,"echo":true,"logprobs":0)", R"(,"tools":[7])"}) {
    EXPECT_EQ(TextError(Text(more)).code, "unsupported") << more;
  }
}

TEST(OpenAiRequestTest, HarmlessValuesOfTheSameFieldsAreTaken) {
  EXPECT_EQ(ChatError(Chat(R"(,"tools":[],"tool_choice":"none","n":1,
      "response_format":{"type":"text"},"logprobs":false,"top_logprobs":0,
      "logit_bias":{},"modalities":["text"],"functions":[],
      "function_call":null)"))
                .message,
            "accepted");
  EXPECT_EQ(TextError(Text(R"(,"echo":false,"suffix":"","best_of":1,
      "logprobs":null)"))
                .message,
            "accepted");
}

TEST(OpenAiRequestTest, LogprobsAreASwitchInChatsAndANumberInCompletions) {
  const auto chat = [](const std::string& more) {
    return ParseChatRequest(Chat(more))->options.top_logprobs;
  };
  EXPECT_FALSE(chat("").has_value());
  EXPECT_EQ(chat(R"(,"logprobs":true)"), 0u);
  EXPECT_EQ(chat(R"(,"logprobs":true,"top_logprobs":20)"), 20u);
  for (const char* more :
       {R"(,"top_logprobs":3)", R"(,"logprobs":true,"top_logprobs":21)",
        R"(,"logprobs":true,"top_logprobs":-1)"}) {
    EXPECT_EQ(ChatError(Chat(more)).param, "top_logprobs") << more;
  }
  EXPECT_EQ(ChatError(Chat(R"(,"logprobs":5)")).param, "logprobs");
  const auto text = [](const std::string& more) {
    return ParseCompletionRequest(Text(more))->options.top_logprobs;
  };
  EXPECT_FALSE(text("").has_value());
  EXPECT_FALSE(text(R"(,"logprobs":false)").has_value());
  EXPECT_EQ(text(R"(,"logprobs":0)"), 0u);
  EXPECT_EQ(text(R"(,"logprobs":5)"), 5u);
  EXPECT_EQ(TextError(Text(R"(,"logprobs":true)")).param, "logprobs");
  EXPECT_EQ(TextError(Text(R"(,"logprobs":1000)")).param, "logprobs");
}

TEST(OpenAiRequestTest, BiasesAreIdsAndNumbers) {
  const auto request =
      ParseChatRequest(Chat(R"(,"logit_bias":{"50":-100,"7":0.5})"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{50, -100}, {7, 0.5}}));
}

TEST(OpenAiRequestTest, TheFormOfAReplyBecomesASchemaInItsOwnOrder) {
  const auto schema = [](const std::string& form) {
    const auto request = ParseChatRequest(Chat(",\"response_format\":" + form));
    return request.ok() ? request->prompt.json_schema
                        : std::string(request.status().message());
  };
  EXPECT_EQ(schema(R"({"type":"text"})"), "");
  EXPECT_EQ(schema(R"({"type":"json_object"})"), R"({"type":"object"})");
  EXPECT_EQ(schema(R"({"type":"json_schema","json_schema":{"name":"x",
                "schema":{"type":"object","properties":{"z":{},"a":{}}}}})"),
            R"({"type":"object","properties":{"z":{},"a":{}}})");
  for (const char* form :
       {"7", "{}", "[]", R"({"type":"xml"})", R"({"type":"json_schema"})",
        R"({"type":"json_schema","json_schema":7})",
        R"({"type":"json_schema","json_schema":{"schema":"x"}})"}) {
    const ApiError error =
        ChatError(Chat(std::string(",\"response_format\":") + form));
    EXPECT_EQ(error.http_status, 400) << form;
    EXPECT_TRUE(error.param.starts_with("response_format")) << error.param;
  }
}

TEST(OpenAiRequestTest, CompletionsHaveTheSameFormsAndOneOnly) {
  const auto form = [](const std::string& more) {
    const auto request = ParseCompletionRequest(Text(more));
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->form : ReplyFields();
  };
  EXPECT_EQ(form(R"(,"response_format":{"type":"text"})").json_schema, "");
  EXPECT_EQ(form(R"(,"response_format":{"type":"json_object"})").json_schema,
            R"({"type":"object"})");
  EXPECT_EQ(form(R"(,"json_schema":{"type":"array"})").json_schema,
            R"({"type":"array"})");
  EXPECT_EQ(form(R"(,"grammar":"root ::= x")").grammar, "root ::= x");
  const std::string two = R"(,"json_schema":{"type":"array"},"grammar":"x")";
  EXPECT_EQ(TextError(Text(two)).param, "grammar");
  EXPECT_EQ(ChatError(Chat(two)).param, "grammar");
  EXPECT_EQ(ChatError(Chat(R"(,"json_schema":{"type":"array"},
      "response_format":{"type":"json_object"})"))
                .param,
            "json_schema");
}

TEST(OpenAiRequestTest, AStrictSchemaIsHeldToInFullOrRefusedByItsPlace) {
  const auto form = [](const std::string& schema, const std::string& strict) {
    return ChatError(Chat(R"(,"response_format":{"type":"json_schema",
        "json_schema":{"name":"x","schema":)" +
                          schema + strict + "}}"));
  };
  const auto tool = [](const std::string& schema, const std::string& strict) {
    return ChatError(Chat(R"(,"tools":[{"type":"function","function":{
        "name":"f","parameters":)" +
                          schema + strict + "}}]"));
  };
  const std::string schema =
      R"({"type":"object","properties":{"a":{"not":{"type":"string"}}}})";
  for (const auto& [error, param] :
       {std::pair(form(schema, R"(,"strict":true)"),
                  "response_format.json_schema.schema"),
        {tool(schema, R"(,"strict":true)"), "tools[0].function.parameters"}}) {
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, param);
    EXPECT_EQ(error.code, "invalid_json_schema");
    for (const char* const word : {param, "'#/properties/a'", "'not'"}) {
      EXPECT_NE(error.message.find(word), std::string::npos) << error.message;
    }
  }
  for (const std::string strict :
       {"", R"(,"strict":false)", R"(,"strict":null)"}) {
    EXPECT_EQ(form(schema, strict).http_status, 200);
    EXPECT_EQ(tool(schema, strict).http_status, 200);
    // What is wrong stays wrong.
    EXPECT_EQ(form(R"({"type":"x"})", strict).http_status, 400);
    EXPECT_EQ(tool(R"({"type":"x"})", strict).http_status, 400);
  }
  EXPECT_EQ(form("{}", R"(,"strict":1)").param, "response_format.json_schema");
  EXPECT_EQ(tool("{}", R"(,"strict":"yes")").param, "tools[0]");
  EXPECT_EQ(TextError(Text(R"(,"json_schema":)" + schema)).http_status, 200);
  EXPECT_EQ(TextError(Text(R"(,"json_schema":{"$ref":"#/a"})")).param,
            "json_schema");
}

TEST(OpenAiRequestTest, ASchemaThatWouldCostTooMuchIsRefused) {
  std::string properties;
  for (int i = 0; i < 257; ++i) {
    properties += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":{}";
  }
  const std::string schema = R"({"a":[{"properties":{)" + properties + "}}]}";
  EXPECT_NE(ChatError(Chat(R"(,"response_format":{"type":"json_schema",
      "json_schema":{"schema":)" +
                           schema + "}}"))
                .message.find("256"),
            std::string::npos);
  EXPECT_EQ(ChatError(Chat(R"(,"tools":[{"type":"function","function":{
      "name":"f","parameters":{"d":")" +
                           std::string(300'000, 'x') + "\"}}}]"))
                .param,
            "tools[0].function.parameters");
}

constexpr char kTwoTools[] = R"(,"tools":[
    {"type":"function","function":{"name":"look_up","description":"Looks.",
      "parameters":{"type":"object","properties":{"z":{"type":"string"}}}}},
    {"type":"function","function":{"name":"stop"}}])";

TEST(OpenAiRequestTest, ToolsAreReadAndMayBeRequired) {
  const auto read = [](const std::string& more) {
    const auto request = ParseChatRequest(Chat(kTwoTools + more));
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->prompt : models::ChatPrompt();
  };
  const models::ChatPrompt plain = read("");
  ASSERT_EQ(plain.tools.size(), 2u);
  EXPECT_EQ(plain.tools[0].name, "look_up");
  EXPECT_EQ(plain.tools[0].description, "Looks.");
  EXPECT_EQ(plain.tools[0].parameters,
            R"({"type":"object","properties":{"z":{"type":"string"}}})");
  EXPECT_EQ(plain.tools[1].parameters, R"({"type":"object","properties":{}})");
  EXPECT_EQ(plain.tool_choice, models::ToolChoice::kAuto);
  EXPECT_TRUE(plain.parallel_tool_calls);
  EXPECT_EQ(read(R"(,"tool_choice":"none")").tool_choice,
            models::ToolChoice::kNone);
  const models::ChatPrompt any =
      read(R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_EQ(any.tool_choice, models::ToolChoice::kRequired);
  EXPECT_EQ(any.required_tool, "");
  EXPECT_FALSE(any.parallel_tool_calls);
  const models::ChatPrompt one =
      read(R"(,"tool_choice":{"type":"function","function":{"name":"stop"}})");
  EXPECT_EQ(one.tool_choice, models::ToolChoice::kRequired);
  EXPECT_EQ(one.required_tool, "stop");
}

TEST(OpenAiRequestTest, WrongToolsAndChoicesNameTheirField) {
  for (const char* tools :
       {"7", "{}", "[7]", "[{}]", R"([{"type":"web_search"}])",
        R"([{"type":"function"}])", R"([{"type":"function","function":{}}])",
        R"([{"type":"function","function":{"name":""}}])",
        R"([{"type":"function","function":{"name":"a b"}}])",
        R"([{"type":"function","function":{"name":"f","parameters":[]}}])",
        R"([{"type":"function","function":{"name":"f","description":7}}])",
        R"([{"type":"function","function":{"name":"f"}},
            {"type":"function","function":{"name":"f"}}])"}) {
    const ApiError error = ChatError(Chat(std::string(",\"tools\":") + tools));
    EXPECT_EQ(error.http_status, 400) << tools;
    EXPECT_TRUE(error.param.starts_with("tools")) << tools << error.param;
  }
  for (const char* choice :
       {R"("always")", "7", "{}", R"({"type":"function"})",
        R"({"type":"function","function":{"name":"nobody"}})",
        R"({"type":"function","function":"stop"})"}) {
    EXPECT_EQ(
        ChatError(Chat(std::string(kTwoTools) + ",\"tool_choice\":" + choice))
            .param,
        "tool_choice")
        << choice;
  }
  EXPECT_EQ(ChatError(Chat(R"(,"tool_choice":"required")")).param,
            "tool_choice");
  EXPECT_EQ(
      ChatError(Chat(std::string(kTwoTools) + R"(,"grammar":"root ::= x")"))
          .param,
      "grammar");
}

TEST(OpenAiRequestTest, WhatTemplatesAskAboutReachesThem) {
  const auto request = ParseChatRequest(Chat(R"(,"reasoning_effort":"low",
      "chat_template_kwargs":{"enable_thinking":false,"x":[1]})"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(request->prompt.thinking);
  EXPECT_EQ(request->prompt.template_arguments.at("x"), "[1]");
  EXPECT_EQ(request->prompt.template_arguments.at("reasoning_effort"),
            "\"low\"");
  EXPECT_FALSE(
      ParseChatRequest(Chat(R"(,"reasoning_effort":"none")"))->prompt.thinking);
  EXPECT_EQ(ChatError(Chat(R"(,"chat_template_kwargs":{"messages":[]})")).param,
            "chat_template_kwargs");
  EXPECT_EQ(ChatError(Chat(R"(,"chat_template_kwargs":7)")).param,
            "chat_template_kwargs");
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

TEST(OpenAiRequestTest, PromptsAreTextsOrTokensOneOrSeveral) {
  using Tokens = std::vector<TokenId>;
  const auto prompts = [](const char* text) {
    return ParseCompletionRequest(
               Json::parse(std::string("{\"prompt\":") + text + "}"))
        ->prompts;
  };
  EXPECT_EQ(prompts(R"("a")"), (std::vector<CompletionPrompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<CompletionPrompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1,2,3]"),
            (std::vector<CompletionPrompt>{Tokens{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1,2],[3]]"),
            (std::vector<CompletionPrompt>{Tokens{1, 2}, Tokens{3}}));
  EXPECT_EQ(prompts(R"([[1],"a"])"),
            (std::vector<CompletionPrompt>{Tokens{1}, "a"}));
}

TEST(OpenAiRequestTest, AnEmptyOrStrangePromptIsRefused) {
  for (const char* text :
       {R"({})", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":[]})",
        R"({"prompt":[""]})", R"({"prompt":[[]]})", R"({"prompt":["a",""]})",
        R"({"prompt":[[1],[]]})", R"({"prompt":7})", R"({"prompt":{}})",
        R"({"prompt":[1,"a"]})", R"({"prompt":[1,-1]})", R"({"prompt":[1.5]})",
        R"({"prompt":[1,4294967296]})", R"({"prompt":[true]})",
        R"({"prompt":[{}]})", R"({"prompt":[[["a"]]]})",
        R"({"prompt":["a",null]})"}) {
    const ApiError error = TextError(Json::parse(text));
    EXPECT_EQ(error.http_status, 400) << text;
    EXPECT_EQ(error.param, "prompt") << text;
  }
}

TEST(OpenAiRequestTest, OneRequestAsksForAtMostSoManyReplies) {
  std::string many = "\"a\"";
  for (int i = 1; i < 64; ++i) {
    many += ",\"a\"";
  }
  const std::string prompt = "{\"prompt\":[" + many + "],\"n\":";
  EXPECT_EQ(TextError(Json::parse(prompt + "2}")).message, "accepted");
  EXPECT_EQ(TextError(Json::parse(prompt + "3}")).param, "n");
  EXPECT_EQ(
      TextError(Json::parse("{\"prompt\":[" + many + "," + many + ",\"a\"]}"))
          .param,
      "prompt");
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
