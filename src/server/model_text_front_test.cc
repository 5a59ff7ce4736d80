#include "server/model_text_front.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "testing/temp_dir.h"
#include "testing/tiny_gguf.h"

namespace everwarm::server {
namespace {

// One token for each letter, and one for two of "a".
std::unique_ptr<models::Vocabulary> Letters() {
  TinyGguf tiny = TinyGguf::Llama(1);
  tiny.strings["tokenizer.ggml.model"] = "gpt2";
  tiny.strings["tokenizer.ggml.pre"] = "default";
  std::vector<std::string>& tokens =
      tiny.string_arrays["tokenizer.ggml.tokens"];
  for (char letter = '!'; letter <= '~'; ++letter) {
    tokens.emplace_back(1, letter);
  }
  tokens.emplace_back("aa");
  tiny.string_arrays["tokenizer.ggml.merges"] = {"a a"};
  const TempDir dir;
  const std::string path = dir.File("tiny.gguf");
  EXPECT_TRUE(tiny.Write(path));
  auto vocabulary = models::Vocabulary::Load(path);
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return *std::move(vocabulary);
}

TEST(ModelTextFrontTest, WhatCannotFitIsRefusedWithBothCounts) {
  const auto vocabulary = Letters();
  const ModelTextFront front(vocabulary.get(), nullptr, 100);
  for (const char letter : {'a', 'b'}) {
    const size_t longest = letter == 'a' ? 198 : 99;
    const auto fits = front.Tokenize(std::string(longest, letter), {});
    ASSERT_TRUE(fits.ok()) << fits.status();
    EXPECT_EQ(fits->size(), 99u);
    const auto refused = front.Tokenize(std::string(longest + 1, letter), {});
    ASSERT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
    const std::string message(refused.status().message());
    EXPECT_NE(message.find(" 100 tokens"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(longest + 1) + " bytes"),
              std::string::npos)
        << message;
  }
}

TEST(ModelTextFrontTest, WhatWasGeneratedKeepsItsTokens) {
  const auto vocabulary = Letters();
  engine::TokenHistory history(
      Fingerprint{},
      [&](TokenId token) { return vocabulary->PieceWithControl(token); },
      engine::TokenHistory::Limits{});
  const ModelTextFront front(vocabulary.get(), nullptr, 100, &history);
  const auto canonical = front.TokenizePrompt("aaaab", {}, "");
  ASSERT_TRUE(canonical.ok());
  const auto single = front.Tokenize("a", {});
  ASSERT_TRUE(single.ok());
  // Generated letter by letter, where the tokenizer takes two at once.
  std::vector<TokenId> generated = *front.Tokenize("", {});
  for (int i = 0; i < 3; ++i) {
    generated.push_back(single->back());
  }
  history.Remember("", generated);
  const auto again = front.TokenizePrompt("aaaab", {}, "");
  ASSERT_TRUE(again.ok());
  EXPECT_NE(*again, *canonical);
  EXPECT_EQ(
      std::vector<TokenId>(again->begin(), again->begin() + generated.size()),
      generated);
  EXPECT_EQ(front.Detokenize(*again), front.Detokenize(*canonical));
  EXPECT_EQ(*front.TokenizePrompt("aaaab", {}, "other"), *canonical);
  EXPECT_EQ(*front.TokenizePrompt("aab", {}, ""), *front.Tokenize("aab", {}));
}

}  // namespace
}  // namespace everwarm::server
