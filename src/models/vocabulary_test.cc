// Vocabularies and chat templates that a test makes itself: long runs of one
// kind of character, and files that are refused.
#include "models/vocabulary.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/chat_template.h"
#include "models/deep_stack.h"
#include "testing/temp_dir.h"
#include "testing/tiny_gguf.h"

namespace everwarm::models {
namespace {

using ::testing::HasSubstr;

// A byte-level vocabulary of ASCII with a splitter that llama.cpp runs through
// std::regex, which recurses once per character.
TinyGguf RecursingVocabulary() {
  TinyGguf tiny = TinyGguf::Llama(1);
  tiny.strings["tokenizer.ggml.model"] = "gpt2";
  tiny.strings["tokenizer.ggml.pre"] = "deepseek-llm";
  std::vector<std::string>& tokens =
      tiny.string_arrays["tokenizer.ggml.tokens"];
  for (char character = '!'; character <= '~'; ++character) {
    tokens.emplace_back(1, character);
  }
  tokens.emplace_back("\u0120");  // a space
  tokens.emplace_back("\u010A");  // a line feed
  tokens.emplace_back("AA");
  tiny.string_arrays["tokenizer.ggml.merges"] = {"A A"};
  return tiny;
}

// Runs on a stack of 8 MiB, as threads usually have.
void OnUsualStack(const std::function<void()>& work) {
  ASSERT_TRUE(RunOnStack(size_t{8} << 20, work).ok());
}

TEST(RecursingVocabularyTest, LongRunsAreTokenizedOnAStackOfTheirOwn) {
  const TempDir dir;
  const std::string path = dir.File("tiny.gguf");
  ASSERT_TRUE(RecursingVocabulary().Write(path));
  const auto vocabulary = Vocabulary::Load(path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  OnUsualStack([&] {
    const auto tokens =
        (*vocabulary)
            ->Tokenize(std::string(200000, 'A'), {.add_special = false});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(tokens->size(), 100000u);
    EXPECT_EQ((*vocabulary)->Piece(tokens->front()), "AA");
  });
}

TEST(RecursingVocabularyTest, TextsBeyondTheStackLimitAreRefused) {
  const TempDir dir;
  const std::string path = dir.File("tiny.gguf");
  ASSERT_TRUE(RecursingVocabulary().Write(path));
  const auto vocabulary = Vocabulary::Load(path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const auto tokens = (*vocabulary)->Tokenize(std::string(20'000'000, 'A'), {});
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokens.status().message()), HasSubstr("20000000"));
}

TEST(VocabularyLoadTest, MissingAndForeignFilesAreRefused) {
  const TempDir dir;
  EXPECT_EQ(Vocabulary::Load(dir.File("none.gguf")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Vocabulary::Load(dir.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateLoadTest, ATemplateThatDoesNotParseIsRefusedInItsWords) {
  const TempDir dir;
  const std::string path = dir.File("tiny.gguf");
  TinyGguf tiny = RecursingVocabulary();
  tiny.strings["tokenizer.chat_template"] = "{% for message in %}";
  ASSERT_TRUE(tiny.Write(path));
  const auto vocabulary = Vocabulary::Load(path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const auto chat = ChatTemplate::Load(**vocabulary);
  EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_GT(chat.status().message().size(), 50u) << chat.status();
}

TEST(ChatTemplateLoadTest, ATemplateThatRaisesIsRefusedInItsWords) {
  const TempDir dir;
  const std::string path = dir.File("tiny.gguf");
  TinyGguf tiny = RecursingVocabulary();
  tiny.strings["tokenizer.chat_template"] =
      "{% for message in messages %}{% if message['role'] == 'system' %}"
      "{{ raise_exception('no orders here') }}{% endif %}"
      "{{ message['content'] }}{% endfor %}";
  ASSERT_TRUE(tiny.Write(path));
  const auto vocabulary = Vocabulary::Load(path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const auto chat = ChatTemplate::Load(**vocabulary);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto prompt =
      (*chat)->Render({.messages = {{"user", "hi"}, {"system", "x"}}});
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompt.status().message()),
              HasSubstr("no orders here"));
}

}  // namespace
}  // namespace everwarm::models
