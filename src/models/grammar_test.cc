#include "models/grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "testing/byte_vocabulary.h"

namespace everwarm::models {
namespace {

using std::string_literals::operator""s;

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(bytes_.status().ok()) << bytes_.status();
  }
  const Vocabulary& vocabulary() { return bytes_.vocabulary(); }

  std::unique_ptr<Grammar> Compile(const GrammarSpec& spec) {
    auto grammar = Grammar::Compile(vocabulary(), spec);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return grammar.ok() ? *std::move(grammar) : nullptr;
  }
  // True if the grammar lets all of the text through.
  bool Takes(Grammar& grammar, const std::string& text) {
    for (const TokenId token : bytes_.Tokens(text)) {
      if (!grammar.Allows(token) || !grammar.Accept(token).ok()) {
        return false;
      }
    }
    return true;
  }
  bool MayEnd(const Grammar& grammar) { return grammar.Allows(bytes_.end()); }

  ByteVocabulary bytes_;
};

TEST_F(GrammarTest, ATokenThatIsNotAllowedIsAnErrorWithoutItsText) {
  const std::unique_ptr<Grammar> grammar =
      Compile({.text = "root ::= \"a\" [a-z]+"});
  const std::string secret = "aXYLOPHONE";
  absl::Status status;
  for (const TokenId token : bytes_.Tokens(secret)) {
    status = grammar->Accept(token);
    if (!status.ok()) {
      break;
    }
  }
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(status.message(),
            "a token that the grammar does not allow was chosen");
}

TEST_F(GrammarTest, OnlyWhatItSaysIsAllowed) {
  const auto grammar = Compile({.text = "root ::= \"yes\" | \"no\""});
  EXPECT_FALSE(MayEnd(*grammar));
  EXPECT_TRUE(grammar->Allows(bytes_.Tokens("y")[0]));
  EXPECT_TRUE(grammar->Allows(bytes_.Tokens("n")[0]));
  EXPECT_FALSE(grammar->Allows(bytes_.Tokens("o")[0]));
  EXPECT_TRUE(Takes(*grammar, "no"));
  EXPECT_TRUE(MayEnd(*grammar));
  EXPECT_FALSE(grammar->Allows(bytes_.Tokens("o")[0]));
  // The end of a generation changes nothing, however often it comes.
  EXPECT_TRUE(grammar->Accept(bytes_.end()).ok());
  EXPECT_TRUE(grammar->Accept(bytes_.end()).ok());
  EXPECT_TRUE(MayEnd(*grammar));
}

TEST_F(GrammarTest, TheMaskAgreesWithEachTokenAlone) {
  const auto grammar = Compile({.text = "root ::= [0-9]+ \"<tool_call>\""});
  ASSERT_TRUE(Takes(*grammar, "42"));
  std::vector<float> logits(vocabulary().size(), 1.5f);
  logits[3] = NAN;
  grammar->Mask(absl::MakeSpan(logits));
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i != 3) {
      EXPECT_EQ(std::isfinite(logits[i]),
                grammar->Allows(static_cast<TokenId>(i)))
          << i;
    }
  }
}

TEST_F(GrammarTest, ACopyGoesItsOwnWay) {
  const auto grammar = Compile({.text = "root ::= \"ab\" | \"ac\""});
  ASSERT_TRUE(Takes(*grammar, "a"));
  const auto copy = grammar->Clone();
  EXPECT_TRUE(Takes(*copy, "b"));
  EXPECT_FALSE(MayEnd(*grammar));
  EXPECT_TRUE(Takes(*grammar, "c"));
  EXPECT_TRUE(MayEnd(*copy));
}

// Whatever is chosen among the allowed, the text is JSON of the schema.
TEST_F(GrammarTest, RandomTextsOfASchemaFitIt) {
  const auto text = JsonSchemaGrammar(R"({"type":"object","properties":{
      "z":{"type":"integer"},"kind":{"enum":["a","b"]},
      "list":{"type":"array","items":{"type":"boolean"},"maxItems":3}},
      "required":["z","kind"],"additionalProperties":false})");
  ASSERT_TRUE(text.ok()) << text.status();
  const auto prototype = Compile({.text = *text});
  std::mt19937 random(5);
  for (int run = 0; run < 30; ++run) {
    const auto grammar = prototype->Clone();
    std::string reply;
    while (!MayEnd(*grammar) && reply.size() < 5000) {
      std::vector<float> logits(vocabulary().size(), 0.0f);
      grammar->Mask(absl::MakeSpan(logits));
      std::vector<TokenId> allowed;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (std::isfinite(logits[i])) {
          allowed.push_back(static_cast<TokenId>(i));
        }
      }
      ASSERT_FALSE(allowed.empty()) << reply;
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(grammar->Accept(token).ok());
      reply += vocabulary().Piece(token);
    }
    const auto json = nlohmann::json::parse(reply, nullptr, false);
    ASSERT_TRUE(json.is_object()) << reply;
    EXPECT_TRUE(json.at("z").is_number_integer()) << reply;
    EXPECT_TRUE(json.at("kind") == "a" || json.at("kind") == "b") << reply;
  }
}

TEST_F(GrammarTest, WhatThePromptHoldsAlreadyIsBehindIt) {
  const auto grammar = Compile(
      {.text = "root ::= \"assistant: \" \"yes\"", .behind = "assistant: "});
  EXPECT_TRUE(Takes(*grammar, "yes"));
  EXPECT_TRUE(MayEnd(*grammar));
}

TEST_F(GrammarTest, ALazyOneWaitsForItsWordAcrossTokens) {
  const GrammarSpec spec = {.text = "root ::= \"<tool_call>\" [0-9]+ \"!\"",
                            .lazy = true,
                            .trigger_words = {"<tool_call>"}};
  for (const std::string before : {"", "so ", "a < b <tool <tool_cal "}) {
    const auto grammar = Compile(spec);
    for (const char c : before) {
      ASSERT_TRUE(Takes(*grammar, std::string(1, c))) << before;
    }
    EXPECT_FALSE(grammar->constrains());
    for (const char c : std::string("<tool_call>")) {
      EXPECT_FALSE(grammar->constrains());
      ASSERT_TRUE(Takes(*grammar, std::string(1, c))) << before;
    }
    EXPECT_TRUE(grammar->constrains());
    EXPECT_FALSE(MayEnd(*grammar));
    EXPECT_FALSE(grammar->Allows(bytes_.Tokens("x")[0]));
    EXPECT_TRUE(Takes(*grammar, "12!"));
    EXPECT_TRUE(MayEnd(*grammar));
  }
}

TEST_F(GrammarTest, ALazyOneThatDoesNotFitItsBeginningLeavesTheReplyFree) {
  const auto grammar = Compile({.text = "root ::= \"<tool_call>\" [0-9]+",
                                .lazy = true,
                                .trigger_words = {"<tool_call>"}});
  for (const char c : std::string("<tool_")) {
    ASSERT_TRUE(Takes(*grammar, std::string(1, c)));
  }
  // One token that ends the word and goes on with what is not allowed.
  const auto id = static_cast<TokenId>(vocabulary().size()) - 3;
  ASSERT_EQ(vocabulary().Piece(id), "call>{");
  EXPECT_TRUE(grammar->Accept(id).ok());
  EXPECT_FALSE(grammar->constrains());
  EXPECT_TRUE(Takes(*grammar, "anything <tool_call> at all"));
}

TEST_F(GrammarTest, ALazyOneMayWaitForAPattern) {
  const GrammarSpec spec = {.text = "root ::= \"to=\" [a-z]+ \"!\"",
                            .lazy = true,
                            .trigger_patterns = {"go (to=)"}};
  const auto grammar = Compile(spec);
  EXPECT_TRUE(Takes(*grammar, "I go to Rome or go to="));
  EXPECT_FALSE(MayEnd(*grammar));
  EXPECT_FALSE(grammar->Allows(bytes_.Tokens("5")[0]));
  EXPECT_TRUE(Takes(*grammar, "rome!"));
  EXPECT_TRUE(MayEnd(*grammar));
  // A reply that never gets there is free, however long.
  const auto free = Compile(spec);
  EXPECT_TRUE(Takes(*free, std::string(20'000, 'x')));
  EXPECT_TRUE(MayEnd(*free));
}

TEST_F(GrammarTest, WhatIsNoGrammarIsRefused) {
  for (const char* text : {"",
                           " ",
                           "\n",
                           "root",
                           "root ::=",
                           "root ::= (",
                           "root ::= )",
                           "root ::= other",
                           "root ::= \"a",
                           "root ::= [a",
                           "root ::= [",
                           "root ::= *",
                           "root ::= \"a\"{",
                           "root ::= \"a\"{1",
                           "root ::= \"a\"{99999999999999999999}",
                           "root ::= \"a\"{5000}",
                           "root ::= root \"a\"",
                           "root ::= \"\\x\"",
                           "root ::= \"\\",
                           "other ::= x",
                           "root ::= <9999999>",
                           "root ::= <",
                           "root ::= !",
                           "::=",
                           "root ::= ()*",
                           "root ::= \"\"+ a",
                           "root ::= ((\"\")*)*",
                           "{}",
                           "null",
                           "\xff\xfe",
                           "root ::= \"\xff\"",
                           "root ::= [\xff-\xfe]",
                           "root ::= a\na ::= b\nb ::= a"}) {
    const auto grammar = Grammar::Compile(vocabulary(), {.text = text});
    if (!grammar.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(grammar.status()))
          << text << grammar.status();
      EXPECT_FALSE(grammar.status().message().empty());
    }
  }
  EXPECT_FALSE(Grammar::Compile(vocabulary(), {.text = "root ::= other"}).ok());
  EXPECT_FALSE(Grammar::Compile(vocabulary(), {.text = "\0"s}).ok());
  EXPECT_FALSE(
      Grammar::Compile(vocabulary(), {.text = "root ::= \"a\"\0 | b"s}).ok());
  EXPECT_FALSE(
      Grammar::Compile(vocabulary(), {.text = "root ::= root \"a\""}).ok());
}

// A grammar comes from a client: whatever it is, nothing may end the process.
TEST_F(GrammarTest, ChangedGrammarsAreRefusedOrFollowedSafely) {
  const std::vector<std::string> seeds = {
      "root ::= \"a\" b* | [^x-z]{2,5} (c | \"\")?\nb ::= [0-9]+\nc ::= . b",
      "root ::= obj\nobj ::= \"{\" (pair (\",\" pair)*)? \"}\"\n"
      "pair ::= \"\\\"\" [a-z]+ \"\\\":\" (obj | [0-9]{1,3})",
      "root ::= <[98]> !<[3]> \"\\x41\\u0042\" | root2\nroot2 ::= ((\"a\")+)?"};
  const std::vector<std::string> pieces = {
      "(",  ")",    "[",     "]",    "*",     "+",  "?",   "{",
      "}",  "{0,}", "{0}",   "\"",   "\\",    "|",  "::=", "\n",
      "<",  ">",    "!",     ".",    "root",  "[]", "[^]", "\"\"",
      "()", "\\x",  "\\u12", "\xff", "<[0]>", "#",  "-",   ","};
  std::mt19937 random(11);
  int compiled = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (size_t edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 3);
      } else {
        text.insert(at, pieces[random() % pieces.size()]);
      }
    }
    const auto grammar = Grammar::Compile(vocabulary(), {.text = text});
    if (!grammar.ok()) {
      continue;
    }
    ++compiled;
    for (int step = 0; step < 20; ++step) {
      std::vector<float> logits(vocabulary().size(), 0.0f);
      (*grammar)->Mask(absl::MakeSpan(logits));
      std::vector<TokenId> allowed;
      for (size_t id = 0; id < logits.size(); ++id) {
        if (std::isfinite(logits[id])) {
          allowed.push_back(static_cast<TokenId>(id));
        }
      }
      if (allowed.empty()) {
        break;
      }
      ASSERT_TRUE((*grammar)->Accept(allowed[random() % allowed.size()]).ok())
          << text;
    }
  }
  EXPECT_GT(compiled, 300);
}

TEST_F(GrammarTest, DeepOnesNeedNoMoreStackThanThereIs) {
  const std::string deep = absl::StrCat("root ::= ", std::string(50'000, '('),
                                        "\"a\"", std::string(50'000, ')'));
  (void)Grammar::Compile(vocabulary(), {.text = deep});
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i) {
    absl::StrAppend(&chain, "r", i, " ::= r", i + 1, "\n");
  }
  (void)Grammar::Compile(vocabulary(), {.text = chain + "r20000 ::= \"a\""});
  EXPECT_FALSE(
      Grammar::Compile(vocabulary(), {.text = std::string(2'000'000, 'a')})
          .ok());
}

TEST_F(GrammarTest, SchemasThatCannotBeFollowedAreRefused) {
  for (const char* schema :
       {"", "{", R"({"$ref":"#/nowhere"})", R"({"$ref":"https://a.b/c"})",
        R"({"type":"nonsense"})", R"({"type":"string","pattern":"^(a$"})"}) {
    const auto grammar = JsonSchemaGrammar(schema);
    if (!grammar.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(grammar.status())) << schema;
    }
  }
  EXPECT_FALSE(JsonSchemaGrammar("{").ok());
  EXPECT_TRUE(JsonSchemaGrammar(R"({"type":"object"})").ok());
}

}  // namespace
}  // namespace everwarm::models
