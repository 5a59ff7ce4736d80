// Chat templates that know tools and thoughts, and one that knows neither.
#include "models/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "testing/byte_vocabulary.h"
#include "testing/source_files.h"

namespace everwarm::models {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPlain[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + "
    "m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// One that llama.cpp brings for its own tests.
std::string TemplateFile(const std::string& name) {
  std::ifstream file(SourceFile(".deps/llama.cpp/models/templates/" + name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ChatTemplateTest : public testing::Test {
 protected:
  void Load(const std::string& source) {
    bytes_ = std::make_unique<ByteVocabulary>(source);
    ASSERT_TRUE(bytes_->status().ok()) << bytes_->status();
    auto loaded = ChatTemplate::Load(bytes_->vocabulary());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    template_ = *std::move(loaded);
  }
  bool LoadThinking() {
    const std::string source = TemplateFile("Qwen-Qwen3-0.6B.jinja");
    if (!source.empty()) {
      Load(source);
    }
    return !source.empty();
  }
  RenderedPrompt Render(const ChatPrompt& prompt) {
    auto rendered = template_->Render(prompt);
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    return rendered.ok() ? *std::move(rendered) : RenderedPrompt();
  }
  // The grammar takes this reply and may end after it.
  bool Follows(const RenderedPrompt& rendered, const std::string& reply) {
    auto grammar = Grammar::Compile(bytes_->vocabulary(), *rendered.grammar);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    for (const TokenId token : bytes_->Tokens(reply)) {
      if (!(*grammar)->Allows(token) || !(*grammar)->Accept(token).ok()) {
        return false;
      }
    }
    return (*grammar)->Allows(bytes_->end());
  }

  std::unique_ptr<ByteVocabulary> bytes_;
  std::unique_ptr<ChatTemplate> template_;
};

std::vector<ChatTool> TwoTools() {
  return {{"weather", "Says the weather.",
           R"({"type":"object","properties":{"city":{"type":"string"}},)"
           R"("required":["city"]})"},
          {"stop", "", R"({"type":"object","properties":{}})"}};
}

constexpr char kCall[] =
    R"(<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>)";
constexpr char kStop[] =
    R"(<tool_call>{"name": "stop", "arguments": {}}</tool_call>)";

TEST_F(ChatTemplateTest, APlainChatHasNoFormAndNoSyntax) {
  Load(kPlain);
  const RenderedPrompt rendered = Render({.messages = {{"user", "Hi"}}});
  EXPECT_EQ(rendered.text,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_FALSE(rendered.grammar.has_value());
  EXPECT_EQ(rendered.syntax, nullptr);
  EXPECT_EQ(rendered.cue_bytes, 0u);
}

TEST_F(ChatTemplateTest, ATemplateWithoutToolsGetsThemDescribed) {
  Load(kPlain);
  ChatPrompt prompt = {.messages = {{"system", "Be brief."}, {"user", "Ulm?"}},
                       .tools = TwoTools()};
  const RenderedPrompt rendered = Render(prompt);
  EXPECT_THAT(rendered.text, StartsWith("<|im_start|>system\nBe brief.\n\n"));
  EXPECT_THAT(rendered.text, HasSubstr("Says the weather."));
  EXPECT_THAT(rendered.text, HasSubstr("\"city\""));
  ASSERT_TRUE(rendered.grammar.has_value());
  EXPECT_TRUE(rendered.grammar->lazy);
  EXPECT_TRUE(Follows(rendered, "It is sunny."));
  EXPECT_TRUE(Follows(rendered, std::string("Let me look.\n") + kCall));
  EXPECT_TRUE(Follows(rendered, std::string(kCall) + "\n" + kStop));
  EXPECT_FALSE(Follows(rendered, R"(<tool_call>{"name": "nobody")"));
  // The prompt is the same whatever may be called.
  prompt.tool_choice = ToolChoice::kRequired;
  prompt.required_tool = "stop";
  EXPECT_EQ(Render(prompt).text, rendered.text);
  prompt.tool_choice = ToolChoice::kNone;
  prompt.required_tool = "";
  EXPECT_EQ(Render(prompt).text, rendered.text);
  EXPECT_FALSE(Render(prompt).grammar.has_value());
}

TEST_F(ChatTemplateTest, ARequiredToolLeavesNoOtherReply) {
  Load(kPlain);
  ChatPrompt prompt = {.messages = {{"user", "Ulm?"}},
                       .tools = TwoTools(),
                       .tool_choice = ToolChoice::kRequired};
  RenderedPrompt rendered = Render(prompt);
  EXPECT_FALSE(rendered.grammar->lazy);
  EXPECT_TRUE(Follows(rendered, kCall));
  EXPECT_TRUE(Follows(rendered, std::string(kCall) + kStop));
  EXPECT_FALSE(Follows(rendered, "It is sunny."));
  prompt.parallel_tool_calls = false;
  EXPECT_FALSE(Follows(Render(prompt), std::string(kCall) + kStop));
  prompt.required_tool = "stop";
  rendered = Render(prompt);
  EXPECT_TRUE(Follows(rendered, kStop));
  EXPECT_FALSE(Follows(rendered, kCall));
}

TEST_F(ChatTemplateTest, CallsAreReadAlsoInPieces) {
  Load(kPlain);
  const RenderedPrompt rendered =
      Render({.messages = {{"user", "Ulm?"}}, .tools = TwoTools()});
  const std::string text = std::string("Let me look.") + kCall + "\n" + kStop;
  const auto whole = rendered.syntax->Parse(text, false);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->content, "Let me look.");
  ASSERT_EQ(whole->tool_calls.size(), 2u);
  EXPECT_EQ(whole->tool_calls[0].name, "weather");
  EXPECT_EQ(whole->tool_calls[0].arguments, R"({"city": "Ulm"})");
  EXPECT_EQ(whole->tool_calls[1].name, "stop");
  // No piece says what the whole does not.
  for (size_t length = 0; length < text.size(); ++length) {
    const auto piece = rendered.syntax->Parse(text.substr(0, length), true);
    ASSERT_TRUE(piece.has_value()) << text.substr(0, length);
    EXPECT_THAT(whole->content, StartsWith(piece->content));
    ASSERT_LE(piece->tool_calls.size(), 2u);
    for (size_t i = 0; i < piece->tool_calls.size(); ++i) {
      EXPECT_THAT(whole->tool_calls[i].arguments,
                  StartsWith(piece->tool_calls[i].arguments))
          << text.substr(0, length);
    }
  }
  // Only a text that ends in a call has one.
  const auto talk = rendered.syntax->Parse("no call", false);
  ASSERT_TRUE(talk.has_value());
  EXPECT_EQ(talk->content, "no call");
}

TEST_F(ChatTemplateTest, ArgumentsOfAnyDepthAreReadOnTheStackThereIs) {
  Load(kPlain);
  const RenderedPrompt rendered =
      Render({.messages = {{"user", "Ulm?"}},
              .tools = {{"f", "", R"({"type":"object"})"}}});
  const std::string begin = R"(<tool_call>{"name": "f", "arguments": {"a": )";
  (void)rendered.syntax->Parse(begin + std::string(20'000, '['), true);
  const auto deep =
      rendered.syntax->Parse(begin + std::string(2'000, '[') +
                                 std::string(2'000, ']') + "}}</tool_call>",
                             false);
  ASSERT_TRUE(deep.has_value());
  EXPECT_EQ(deep->tool_calls.size(), 1u);
}

// Clients send back ids of any server; Mistral's templates want nine letters.
TEST_F(ChatTemplateTest, IdsOfCallsAreMadeToFitATemplateThatIsParticular) {
  const std::string source =
      TemplateFile("mistralai-Mistral-Nemo-Instruct-2407.jinja");
  if (source.empty()) {
    GTEST_SKIP() << "no templates beside llama.cpp";
  }
  Load(source);
  const auto history = [](const std::string& id) {
    ChatPrompt prompt = {
        .messages = {{"user", "Ulm?"}, {"assistant", ""}, {"tool", "21"}},
        .tools = TwoTools()};
    prompt.messages[1].tool_calls = {{id, "stop", "{}"}};
    prompt.messages[2].tool_name = "stop";
    prompt.messages[2].tool_call_id = id;
    return prompt;
  };
  EXPECT_THAT(Render(history("aB3dE6gH9")).text, HasSubstr("aB3dE6gH9"));
  const std::string text = Render(history("call_5d1f")).text;
  EXPECT_THAT(text, testing::Not(HasSubstr("call_5d1f")));
  EXPECT_EQ(Render(history("call_5d1f")).text, text);
  EXPECT_NE(Render(history("call_5d20")).text, text);
  EXPECT_EQ(Render(history("1000000")).text.size(), text.size());
}

TEST_F(ChatTemplateTest, ATemplateThatThinksButKnowsNoToolsDoesBoth) {
  const std::string source =
      TemplateFile("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja");
  if (source.empty()) {
    GTEST_SKIP() << "no templates beside llama.cpp";
  }
  Load(source);
  const RenderedPrompt rendered =
      Render({.messages = {{"user", "Ulm?"}}, .tools = TwoTools()});
  EXPECT_THAT(rendered.text, HasSubstr("Says the weather."));
  ASSERT_NE(rendered.syntax, nullptr);
  const bool open = rendered.text.ends_with("<think>\n");
  const auto reply = rendered.syntax->Parse(
      absl::StrCat(open ? "" : "<think>", "hm</think>\n\n", kCall), false);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->reasoning, "hm");
  ASSERT_EQ(reply->tool_calls.size(), 1u);
  EXPECT_EQ(reply->tool_calls[0].name, "weather");
}

TEST_F(ChatTemplateTest, HistoriesWithCallsSuitATemplateThatKnowsNone) {
  Load(kPlain);
  ChatMessage call{"assistant", ""};
  call.tool_calls = {{"c1", "weather", R"({"city":"Ulm"})"},
                     {"c2", "stop", ""}};
  const RenderedPrompt rendered = Render({.messages = {{"user", "Ulm?"},
                                                       call,
                                                       {"tool", "sunny"},
                                                       {"tool", "ok"},
                                                       {"user", "Thanks"}}});
  EXPECT_THAT(rendered.text,
              HasSubstr("<|im_start|>assistant\n<tool_call>{\"name\":"
                        "\"weather\",\"arguments\":{\"city\":\"Ulm\"}}"
                        "</tool_call>\n<tool_call>"));
  EXPECT_THAT(
      rendered.text,
      HasSubstr("<|im_start|>user\n<tool_response>\nsunny\n"
                "</tool_response>\n<tool_response>\nok\n"
                "</tool_response><|im_end|>\n<|im_start|>user\nThanks"));
  EXPECT_EQ(rendered.syntax, nullptr);
}

TEST_F(ChatTemplateTest, AReplyOfASchemaIsThatAlone) {
  Load(kPlain);
  ChatPrompt prompt = {.messages = {{"user", "Ulm?"}},
                       .json_schema = R"({"type":"object","properties":{
                         "warm":{"type":"boolean"}},"required":["warm"]})"};
  const RenderedPrompt rendered = Render(prompt);
  EXPECT_TRUE(Follows(rendered, R"({"warm": true})"));
  EXPECT_FALSE(Follows(rendered, "It is warm."));
  EXPECT_FALSE(Follows(rendered, R"({"cold": true})"));
  const auto reply = rendered.syntax->Parse(R"({"warm": true})", false);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->content, R"({"warm": true})");
  prompt.tools = TwoTools();
  EXPECT_FALSE(template_->Render(prompt).ok());
  prompt.tool_choice = ToolChoice::kNone;
  EXPECT_TRUE(Follows(Render(prompt), R"({"warm": true})"));
  prompt.tool_choice = ToolChoice::kRequired;
  EXPECT_TRUE(Follows(Render(prompt), kCall));
  prompt.json_schema = "{";
  prompt.tool_choice = ToolChoice::kNone;
  EXPECT_TRUE(absl::IsInvalidArgument(template_->Render(prompt).status()));
}

TEST_F(ChatTemplateTest, AGrammarOfTheClientsIsFollowedFromTheFirstToken) {
  Load(kPlain);
  const RenderedPrompt rendered = Render(
      {.messages = {{"user", "Ulm?"}}, .grammar = "root ::= \"yes\" | \"no\""});
  EXPECT_TRUE(Follows(rendered, "yes"));
  EXPECT_FALSE(Follows(rendered, "maybe"));
}

TEST_F(ChatTemplateTest, AReplyMayGoOnWithAnAssistantsWords) {
  Load(kPlain);
  const RenderedPrompt rendered =
      Render({.messages = {{"user", "Ulm?"}, {"assistant", "It is"}},
              .continue_last = true});
  EXPECT_THAT(rendered.text, EndsWith("<|im_start|>assistant\nIt is"));
}

TEST_F(ChatTemplateTest, OwnToolsOfATemplateAreUsedAsTheyAre) {
  if (!LoadThinking()) {
    GTEST_SKIP() << "no templates beside llama.cpp";
  }
  ChatPrompt prompt = {.messages = {{"user", "Ulm?"}}, .tools = TwoTools()};
  const RenderedPrompt rendered = Render(prompt);
  EXPECT_THAT(rendered.text, HasSubstr("<tools>"));
  ASSERT_TRUE(rendered.grammar.has_value());
  EXPECT_TRUE(rendered.grammar->lazy);
  const auto reply = rendered.syntax->Parse(
      "<think>\nhm\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": "
      "\"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>",
      false);
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->reasoning, HasSubstr("hm"));
  EXPECT_THAT(reply->content, StartsWith("Let me look."));
  ASSERT_EQ(reply->tool_calls.size(), 1u);
  EXPECT_EQ(reply->tool_calls[0].name, "weather");
  prompt.tool_choice = ToolChoice::kRequired;
  prompt.required_tool = "stop";
  const RenderedPrompt one = Render(prompt);
  EXPECT_EQ(one.text, rendered.text);
  EXPECT_THAT(one.grammar->text, Not(HasSubstr("city")));
  // Without thoughts, nothing comes before a required call.
  constexpr char kStopCall[] =
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  prompt.thinking = false;
  const RenderedPrompt strict = Render(prompt);
  EXPECT_TRUE(Follows(strict, kStopCall));
  EXPECT_FALSE(Follows(strict, "Let me see."));
  EXPECT_FALSE(Follows(strict, absl::StrCat("So: ", kStopCall)));
  EXPECT_TRUE(Follows(strict, absl::StrCat(kStopCall, "\n", kStopCall)));
  prompt.parallel_tool_calls = false;
  EXPECT_TRUE(Follows(Render(prompt), kStopCall));
  EXPECT_FALSE(
      Follows(Render(prompt), absl::StrCat(kStopCall, "\n", kStopCall)));
  const auto stop = strict.syntax->Parse(kStopCall, false);
  ASSERT_TRUE(stop.has_value());
  ASSERT_EQ(stop->tool_calls.size(), 1u);
  EXPECT_EQ(stop->tool_calls[0].name, "stop");
}

TEST_F(ChatTemplateTest, ThoughtsAreReadWithoutToolsToo) {
  if (!LoadThinking()) {
    GTEST_SKIP() << "no templates beside llama.cpp";
  }
  const RenderedPrompt rendered = Render({.messages = {{"user", "Hi"}}});
  ASSERT_NE(rendered.syntax, nullptr);
  const auto reply =
      rendered.syntax->Parse("<think>\nhm\n</think>\n\nHello", false);
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->reasoning, HasSubstr("hm"));
  EXPECT_EQ(reply->content, "Hello");
}

// What a prompt ends with and a later one of the same conversation lacks.
TEST_F(ChatTemplateTest, TheCueIsWhatNeitherAPlainReplyNorACallKeeps) {
  if (!LoadThinking()) {
    GTEST_SKIP() << "no templates beside llama.cpp";
  }
  for (const bool tools : {false, true}) {
    ChatPrompt prompt = {.messages = {{"user", "Ulm?"}}};
    if (tools) {
      prompt.tools = TwoTools();
    }
    EXPECT_EQ(Render(prompt).cue_bytes, 0u);
    prompt.thinking = false;
    const RenderedPrompt rendered = Render(prompt);
    EXPECT_THAT(rendered.text, EndsWith("<think>\n\n</think>\n\n"));
    ASSERT_LE(rendered.cue_bytes, rendered.text.size());
    const std::string kept =
        rendered.text.substr(0, rendered.text.size() - rendered.cue_bytes);
    EXPECT_THAT(kept, EndsWith("<|im_start|>assistant\n"));
    // The next turn begins with it, whatever the reply was.
    prompt.messages.push_back({"assistant", "Warm."});
    prompt.messages.push_back({"user", "And tomorrow?"});
    EXPECT_THAT(Render(prompt).text, StartsWith(kept));
    EXPECT_THAT(Render(prompt).text, Not(StartsWith(rendered.text)));
  }
}

TEST_F(ChatTemplateTest, ACueThatOnlyACallLacksIsFoundToo) {
  // An empty thought before a plain reply, none before a call.
  Load(
      "{% if tools %}{{ 'tools: ' }}{% for t in tools %}{{ t | tojson }}"
      "{% endfor %}{{ '\n' }}{% endif %}"
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
      "{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{% endfor %}"
      "{% elif m['role'] == 'assistant' %}{{ '<-- ' + m['content'] }}"
      "{% else %}{{ m['content'] }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<-- ' }}"
      "{% endif %}");
  const RenderedPrompt rendered = Render({.messages = {{"user", "Ulm?"}}});
  EXPECT_THAT(rendered.text, EndsWith("<|im_start|>assistant\n<-- "));
  EXPECT_EQ(rendered.text.substr(rendered.text.size() - rendered.cue_bytes),
            rendered.cue_bytes == 3 ? "-- " : "<-- ");
  EXPECT_GE(rendered.cue_bytes, 3u);
}

}  // namespace
}  // namespace everwarm::models
