#include "models/token_bound.h"

#include <string>

#include "gtest/gtest.h"

namespace everwarm::models {
namespace {

TEST(TokenBoundTest, NoTokenIsLongerThanTheLongestPiece) {
  TokenBound bound;
  bound.Add("a");
  bound.Add("abcdefghij");
  EXPECT_EQ(bound.MinTokens(""), 0u);
  EXPECT_EQ(bound.MinTokens("abcdefghij"), 1u);
  EXPECT_EQ(bound.MinTokens("abcdefghijk"), 2u);
}

TEST(TokenBoundTest, NoTokenHasMoreOfAByteThanAnyPiece) {
  TokenBound bound;
  bound.Add("<<");
  bound.Add("          ");
  EXPECT_EQ(bound.MinTokens(std::string(1000, '<')), 500u);
  EXPECT_EQ(bound.MinTokens(std::string(1000, ' ')), 100u);
  EXPECT_EQ(bound.MinTokens(std::string(1000, ' ') + std::string(300, '<')),
            150u);
  // In no piece at all: each is a token of its own.
  EXPECT_EQ(bound.MinTokens(std::string(1000, 'z')), 1000u);
}

TEST(TokenBoundTest, AnUnknownCharacterIsOneTokenWhateverItsBytes) {
  const TokenBound bound;
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += "\xF0\x98\x98\x98";
  }
  EXPECT_EQ(bound.MinTokens(text), 30u);
}

}  // namespace
}  // namespace everwarm::models
