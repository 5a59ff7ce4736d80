#include "engine/token_history.h"

#include <gtest/gtest.h>

#include <map>

namespace everwarm::engine {
namespace {

using Tokens = std::vector<TokenId>;

// 0: the unwritten beginning of every prompt; 7: half a character.
std::string Piece(TokenId token) {
  static const std::map<TokenId, std::string> kPieces = {
      {0, "<s>"}, {1, "a"},     {2, "b"},    {3, "ab"},
      {4, "aba"}, {5, "<end>"}, {7, "\xC3"}, {8, "\xA4"}};
  return kPieces.at(token);
}

TokenHistory::Limits Small(size_t entries, size_t bytes) {
  return {entries, bytes};
}

class TokenHistoryTest : public testing::Test {
 protected:
  Tokens Find(std::string_view text, std::string_view name_space = "",
              const Tokens& unwritten = {}) {
    const auto known = history_.Find(name_space, text, unwritten);
    bytes_ = known.has_value() ? known->bytes : 0;
    return known.has_value() ? known->tokens : Tokens();
  }
  TokenHistory history_{Fingerprint{}, Piece, Small(3, 100)};
  size_t bytes_ = 0;
};

TEST_F(TokenHistoryTest, ATextThatBeginsWithAConversationHasItsTokens) {
  history_.Remember("", {1, 2, 1});
  EXPECT_EQ(Find("aba<end>b"), Tokens({1, 2, 1}));
  EXPECT_EQ(bytes_, 3u);
  EXPECT_EQ(Find("aba"), Tokens({1, 2, 1}));
}

TEST_F(TokenHistoryTest, AnEditedTextHasNone) {
  history_.Remember("", {1, 2, 1});
  EXPECT_EQ(Find("abb<end>b"), Tokens());
  EXPECT_EQ(Find(""), Tokens());
}

TEST_F(TokenHistoryTest, ATextThatAConversationBeginsWithHasItsFirstTokens) {
  history_.Remember("", {1, 2, 1, 5});
  EXPECT_EQ(Find("ab"), Tokens({1, 2}));
  EXPECT_EQ(bytes_, 2u);
  // A token reaches beyond the text.
  EXPECT_EQ(Find("aba<en"), Tokens());
  history_.Remember("", {3, 5});
  EXPECT_EQ(Find("a"), Tokens({1}));
}

TEST_F(TokenHistoryTest, TheLongestConversationIsGoneOnWith) {
  history_.Remember("", {1, 2});
  history_.Remember("", {1, 2, 1, 5});
  history_.Remember("", {1});
  EXPECT_EQ(Find("aba<end>b"), Tokens({1, 2, 1, 5}));
  EXPECT_EQ(Find("abb"), Tokens({1, 2}));
}

TEST_F(TokenHistoryTest, OtherTokensWithTheSameTextTakeThePlaceOfTheOld) {
  history_.Remember("", {1, 2, 1});
  history_.Remember("", {3, 1});
  EXPECT_EQ(Find("aba"), Tokens({3, 1}));
  history_.Remember("", {4});
  EXPECT_EQ(Find("aba"), Tokens({4}));
}

TEST_F(TokenHistoryTest, NoNamespaceSeesAnother) {
  history_.Remember("x", {1, 2});
  EXPECT_EQ(Find("ab"), Tokens());
  EXPECT_EQ(Find("ab", "y"), Tokens());
  EXPECT_EQ(Find("ab", "x"), Tokens({1, 2}));
}

TEST_F(TokenHistoryTest, AConversationThatIsKnownByItsRootIsFound) {
  history_.Remember(RootId(Fingerprint{}, "x"), {1, 2});
  EXPECT_EQ(Find("ab", "x"), Tokens({1, 2}));
}

TEST_F(TokenHistoryTest, TokensBeforeTheTextAreNotPartOfIt) {
  history_.Remember("", {0, 1, 2});
  EXPECT_EQ(Find("ab!", "", {0}), Tokens({0, 1, 2}));
  EXPECT_EQ(bytes_, 2u);
  // The same text without them is another prompt.
  EXPECT_EQ(Find("ab!"), Tokens());
}

TEST_F(TokenHistoryTest, OfWhatEndsInsideACharacterTheRestIsRemembered) {
  history_.Remember("", {7});
  EXPECT_EQ(Find("\xC3\xA4"), Tokens());
  history_.Remember("", {3, 1, 7});
  EXPECT_EQ(Find("aba\xC3\xA4"), Tokens({3, 1}));
  EXPECT_EQ(bytes_, 3u);
  history_.Remember("", {3, 1, 7, 8});
  EXPECT_EQ(Find("aba\xC3\xA4"), Tokens({3, 1, 7, 8}));
}

TEST_F(TokenHistoryTest, TheLeastRecentlyUsedGoesFirst) {
  history_.Remember("", {1, 1});
  history_.Remember("", {2, 2});
  history_.Remember("", {1, 2, 2});
  EXPECT_EQ(Find("aa"), Tokens({1, 1}));
  history_.Remember("", {2, 1});
  EXPECT_EQ(Find("bb"), Tokens());
  EXPECT_EQ(Find("aa"), Tokens({1, 1}));
  // More new ones than it keeps, before anybody asks.
  for (int i = 0; i < 10; ++i) {
    Tokens tokens(3 + i, 1);
    tokens.push_back(2);
    history_.Remember("", tokens);
  }
  EXPECT_EQ(Find(std::string(12, 'a') + "b").size(), 13u);
  EXPECT_EQ(Find("aaaaaaaab"), Tokens());
}

TEST_F(TokenHistoryTest, TextsAreBoundedInAll) {
  history_.Remember("", Tokens(60, 1));
  history_.Remember("", Tokens(60, 2));
  EXPECT_EQ(Find(std::string(60, 'a')), Tokens());
  EXPECT_EQ(Find(std::string(60, 'b')).size(), 60u);
  history_.Remember("", Tokens(101, 1));
  EXPECT_EQ(Find(std::string(101, 'a')), Tokens());
}

}  // namespace
}  // namespace everwarm::engine
