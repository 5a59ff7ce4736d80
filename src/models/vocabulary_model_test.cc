// Text to tokens and back with the vocabularies of the tests' models, and texts
// that have crashed tokenizers.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "llama.h"
#include "models/chat_template.h"
#include "models/deep_stack.h"
#include "models/vocabulary.h"
#include "testing/source_files.h"

namespace everwarm::models {
namespace {

std::string Repeated(const std::string& part, size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (size_t i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

std::string Base64Line(size_t size) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::mt19937 random(3);
  std::string text(size, ' ');
  for (char& character : text) {
    character = kAlphabet[random() % 64];
  }
  return text;
}

// Runs on a stack of 8 MiB, as threads usually have.
void OnUsualStack(const std::function<void()>& work) {
  ASSERT_TRUE(RunOnStack(size_t{8} << 20, work).ok());
}

class VocabularyTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = ModelPath(GetParam());
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is not there";
    }
    auto vocabulary = Vocabulary::Load(path);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    vocabulary_ = *std::move(vocabulary);
  }

  std::string Text(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (const TokenId token : tokens) {
      text += vocabulary_->Piece(token);
    }
    return text;
  }

  std::unique_ptr<Vocabulary> vocabulary_;
};

TEST_P(VocabularyTest, TextsComeBackAsTheyWere) {
  std::string mixed = "Hello, world!\n\n  caf\u00e9 \u6f22\u5b57 \U0001F600\t";
  mixed.push_back('\0');
  mixed += "end";
  for (const std::string& text :
       {std::string("a"), std::string("Hello world"), mixed,
        std::string("  two  spaces"), std::string("\r\n\r\n")}) {
    const auto tokens = vocabulary_->Tokenize(text, {.add_special = false});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(Text(*tokens), text);
  }
}

TEST_P(VocabularyTest, NoTextHasFewerTokensThanItsBound) {
  std::vector<std::string> texts = {
      Base64Line(3000),         Repeated("<", 3000),
      Repeated(" ", 3000),      Repeated("\n", 3000),
      Repeated("\t", 3000),     Repeated("=", 3000),
      Repeated("\u2581", 3000), Repeated("\U0001F600", 3000),
      Repeated("\u6f22", 3000), Repeated("\uffff", 3000),
      Repeated("a b", 3000)};
  // Also whatever single tokens stand for, over and over.
  for (uint32_t token = 0; token < vocabulary_->size(); token += 997) {
    texts.push_back(Repeated(
        vocabulary_->PieceWithControl(static_cast<TokenId>(token)), 50));
  }
  for (const std::string& text : texts) {
    const auto tokens = vocabulary_->Tokenize(text, {.add_special = false});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_LE(vocabulary_->MinTokens(text), tokens->size())
        << text.substr(0, 20);
  }
}

TEST_P(VocabularyTest, ARunOfOneCharacterShowsThatItIsManyTokens) {
  // A megabyte of it takes minutes to count.
  EXPECT_GT(vocabulary_->MinTokens(Repeated("<", 1000000)), 50000u);
}

TEST_P(VocabularyTest, AnEmptyTextHasNoTokensOfItsOwn) {
  const auto tokens = vocabulary_->Tokenize("", {.add_special = false});
  ASSERT_TRUE(tokens.ok());
  EXPECT_TRUE(tokens->empty());
}

TEST_P(VocabularyTest, BytesThatAreNotUtf8DoNotCrash) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    std::string text(random() % 200, '\0');
    for (char& byte : text) {
      byte = static_cast<char>(random() % 256);
    }
    vocabulary_->Tokenize(text, {}).IgnoreError();
  }
}

TEST_P(VocabularyTest, TokensOutsideTheVocabularyHaveNoPiece) {
  for (const TokenId token :
       {-1, static_cast<TokenId>(vocabulary_->size()), INT32_MAX}) {
    EXPECT_EQ(vocabulary_->Piece(token), "");
    EXPECT_EQ(vocabulary_->PieceWithControl(token), "");
    EXPECT_FALSE(vocabulary_->IsEndOfGeneration(token));
  }
}

TEST_P(VocabularyTest, ControlTokensAreTextOnlyWhenAskedFor) {
  const TokenId end = llama_vocab_eos(vocabulary_->llama());
  EXPECT_EQ(vocabulary_->Piece(end), "");
  EXPECT_NE(vocabulary_->PieceWithControl(end), "");
  EXPECT_TRUE(vocabulary_->IsEndOfGeneration(end));
  const std::string text = vocabulary_->PieceWithControl(end);
  const auto parsed = vocabulary_->Tokenize(
      text, {.add_special = false, .parse_special = true});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, std::vector<TokenId>{end});
  const auto plain = vocabulary_->Tokenize(
      text, {.add_special = false, .parse_special = false});
  ASSERT_TRUE(plain.ok());
  EXPECT_GT(plain->size(), 1u);
}

TEST_P(VocabularyTest, LongRunsAreTokenizedInBoundedTime) {
  for (const std::string& text :
       {std::string(100'000, 'A'), std::string(50'000, '7'),
        Repeated("\u00e9", 50'000), Base64Line(200'000),
        Repeated("hello world, it is ", 5'000'000 / 19)}) {
    OnUsualStack([&] {
      const auto start = std::chrono::steady_clock::now();
      const auto tokens = vocabulary_->Tokenize(text, {.add_special = false});
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      EXPECT_EQ(Text(*tokens), text);
      EXPECT_LT(std::chrono::steady_clock::now() - start,
                std::chrono::seconds(120));
    });
  }
}

TEST_P(VocabularyTest, ChatsEndWhereTheReplyBegins) {
  const auto chat = ChatTemplate::Load(*vocabulary_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const std::vector<ChatMessage> messages = {{"system", "Be brief."},
                                             {"user", "Hi!"},
                                             {"assistant", "Hello."},
                                             {"user", "And now?"}};
  const auto prompt = (*chat)->Render({.messages = messages});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  // Both files use ChatML: one says so, the other has no template.
  EXPECT_EQ(prompt->text,
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi!<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n"
            "<|im_start|>user\nAnd now?<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_TRUE(prompt->add_special);
}

INSTANTIATE_TEST_SUITE_P(Models, VocabularyTest,
                         testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf",
                                         "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "SmolLM2"
                                                              : "Gemma3");
                         });

}  // namespace
}  // namespace everwarm::models
