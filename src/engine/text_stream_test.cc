#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace everwarm::engine {
namespace {

// All that a stream gives for these pieces, to the end or to a stop string.
std::string Streamed(std::vector<std::string> stops,
                     const std::vector<std::string>& pieces) {
  TextStream stream(std::move(stops));
  std::string text;
  for (const std::string& piece : pieces) {
    text += stream.Add(piece);
    if (stream.stopped()) {
      return text;
    }
  }
  return text + stream.Finish();
}

std::vector<std::string> Bytes(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char c : text) {
    pieces.emplace_back(1, c);
  }
  return pieces;
}

TEST(TextStreamTest, TextWithoutStopsComesOutAtOnce) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("Hello"), "Hello");
  EXPECT_EQ(stream.Add(", world"), ", world");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStreamTest, ACharacterCutAcrossTokensWaitsForItsEnd) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("a\xE2\x82"), "a");
  EXPECT_EQ(stream.Add("\xAC!"), "\xE2\x82\xAC!");
}

TEST(TextStreamTest, AnUnfinishedCharacterAtTheEndBecomesAReplacement) {
  EXPECT_EQ(Streamed({}, {"a\xF0\x9F\x98"}), "a\xEF\xBF\xBD");
}

TEST(TextStreamTest, BytesThatAreNeverUtf8BecomeReplacements) {
  EXPECT_EQ(Streamed({}, {"a\xFF\x80z"}), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
  // A surrogate, an overlong slash, and a number beyond U+10FFFF.
  for (const char* bad : {"\xED\xA0\x80", "\xC0\xAF", "\xF4\x90\x80\x80"}) {
    const std::string text = Streamed({}, Bytes(bad));
    EXPECT_EQ(ValidUtf8(text, nullptr), text);
    EXPECT_NE(text.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(TextStreamTest, NothingOfAStopStringAcrossTokensIsSent) {
  EXPECT_EQ(Streamed({"STOP"}, {"one S", "TO", "P two"}), "one ");
  EXPECT_EQ(Streamed({"STOP"}, Bytes("one STOP two")), "one ");
}

TEST(TextStreamTest, ABeginningOfAStopStringThatDoesNotGoOnIsNotLost) {
  EXPECT_EQ(Streamed({"STOP"}, {"one STO"}), "one STO");
  EXPECT_EQ(Streamed({"STOP"}, {"one ST", "ART"}), "one START");
  EXPECT_EQ(Streamed({"aab"}, Bytes("aaaac")), "aaaac");
}

TEST(TextStreamTest, TheFirstStopInTheTextWinsWhateverTheirOrder) {
  EXPECT_EQ(Streamed({"two", "one"}, {"zero one two"}), "zero ");
  EXPECT_EQ(Streamed({"ab", "abc"}, Bytes("x abc")), "x ");
  EXPECT_EQ(Streamed({"abc", "b"}, Bytes("x abd")), "x a");
}

TEST(TextStreamTest, EmptyStopStringsMeanNothing) {
  EXPECT_EQ(Streamed({""}, {"text"}), "text");
}

TEST(TextStreamTest, PiecesJoinToTheSameTextHoweverTheyAreCut) {
  const std::string text = "a\xE2\x82\xAC stop st sto stop\xF0\x9F\x98\x80 end";
  const std::vector<std::string> stops = {"stop\xF0\x9F\x98\x80 x", "sto!"};
  for (size_t size = 1; size < text.size(); ++size) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += size) {
      pieces.push_back(text.substr(at, size));
    }
    EXPECT_EQ(Streamed(stops, pieces), text) << size;
  }
}

TEST(TextStreamTest, ItSaysWhichStopStringEndedItAndHowMuchWasSent) {
  TextStream stream({"end", "end of", "x"});
  EXPECT_EQ(stream.Add("a e"), "a ");
  EXPECT_EQ(stream.sent_bytes(), 2u);
  EXPECT_EQ(stream.stop(), "");
  EXPECT_EQ(stream.Add("nd of x"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop(), "end of");
  EXPECT_EQ(stream.sent_bytes(), 2u);
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.sent_bytes(), 2u);
  TextStream open({"zzz"});
  EXPECT_EQ(open.Add("az"), "a");
  EXPECT_EQ(open.sent_bytes(), 1u);
  EXPECT_EQ(open.Add("\xc3"), "z");
  EXPECT_EQ(open.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(open.sent_bytes(), 3u);
}

}  // namespace
}  // namespace everwarm::engine
