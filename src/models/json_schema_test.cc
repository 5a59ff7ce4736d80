#include "models/json_schema.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/deep_stack.h"
#include "models/grammar.h"
#include "models/schema_pattern.h"
#include "testing/byte_vocabulary.h"

namespace everwarm::models {
namespace {

std::string Refusal(const std::string& schema,
                    SchemaUse use = SchemaUse::kStrict) {
  const auto text = FollowableSchema(schema, use);
  if (text.ok()) {
    return "";
  }
  EXPECT_TRUE(absl::IsInvalidArgument(text.status())) << schema;
  return std::string(text.status().message());
}

bool Says(const std::string& message, const std::string& what) {
  return message.find(what) != std::string::npos;
}

class JsonSchemaTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(bytes_.status().ok()) << bytes_.status();
  }
  std::unique_ptr<Grammar> Compile(const std::string& schema) {
    const auto text = FollowableSchema(schema, SchemaUse::kStrict);
    EXPECT_TRUE(text.ok()) << text.status();
    const auto grammar = JsonSchemaGrammar(text.value_or("{}"));
    EXPECT_TRUE(grammar.ok()) << schema << grammar.status();
    auto compiled =
        Grammar::Compile(bytes_.vocabulary(), {.text = grammar.value_or("")});
    EXPECT_TRUE(compiled.ok()) << schema << compiled.status();
    return compiled.ok() ? *std::move(compiled) : nullptr;
  }
  bool Fits(const Grammar& prototype, const std::string& reply) {
    const auto grammar = prototype.Clone();
    for (const TokenId token : bytes_.Tokens(reply)) {
      if (!grammar->Allows(token) || !grammar->Accept(token).ok()) {
        return false;
      }
    }
    return grammar->Allows(bytes_.end());
  }
  // What a model without any sense would write; empty where it came to no end,
  // for one because the vocabulary has no token for what has to come.
  std::string RandomReply(const Grammar& prototype) {
    const auto grammar = prototype.Clone();
    std::string reply;
    while (!(grammar->Allows(bytes_.end()) && random_() % 8 == 0) &&
           reply.size() < kLongReply) {
      std::vector<float> logits(bytes_.vocabulary().size(), 0.0f);
      grammar->Mask(absl::MakeSpan(logits));
      std::vector<TokenId> allowed;
      for (size_t i = 0; i < logits.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        if (std::isfinite(logits[i]) && token != bytes_.end()) {
          allowed.push_back(token);
        }
      }
      if (allowed.empty()) {
        return grammar->Allows(bytes_.end()) ? reply : "";
      }
      const TokenId token = allowed[random_() % allowed.size()];
      EXPECT_TRUE(grammar->Accept(token).ok());
      reply += bytes_.vocabulary().Piece(token);
    }
    return reply.size() < kLongReply ? reply : "";
  }

  static constexpr size_t kLongReply = 2000;
  ByteVocabulary bytes_;
  std::mt19937 random_{3};
};

TEST_F(JsonSchemaTest, WhatIsFollowedAsItIsIsNotTouched) {
  for (const std::string schema :
       {R"({})", R"({"type":"object"})", R"({"type":["string","null"]})",
        R"({"title":"T","description":"d","$schema":"s","type":"object",
           "properties":{"z":{"type":"integer","minimum":1,"maximum":9},
           "a":{"type":"string","maxLength":20},"e":{"enum":["x",1,null]},
           "c":{"const":"v"},"l":{"type":"array","items":{"$ref":"#/$defs/n"},
           "minItems":1,"maxItems":3},"t":{"type":"string","format":"date"},
           "m":{"type":"object","additionalProperties":{"type":"boolean"}}},
           "required":["z","a"],"additionalProperties":false,
           "$defs":{"n":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n2"}]},
           "n2":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}})",
        R"({"type":"string","pattern":"^[a-z]+(-[0-9]{2,3})?$"})",
        R"({"type":["integer","null"],"minimum":3,"description":"of one"})",
        R"({"type":"string","minimum":3})"}) {
    for (const SchemaUse use : {SchemaUse::kStrict, SchemaUse::kBestEffort}) {
      const auto text = FollowableSchema(schema, use);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, schema);
    }
  }
}

// The converter passes over all of these.
TEST_F(JsonSchemaTest, WhatCannotBeHeldToIsRefusedByNameWhereItIsStrict) {
  const struct {
    const char* schema;
    const char* keyword;
  } cases[] = {
      {R"({"not":{"type":"string"}})", "not"},
      {R"({"type":"object","if":{},"then":{}})", "if"},
      {R"({"type":"object","patternProperties":{"^a":{}}})",
       "patternProperties"},
      {R"({"type":"object","properties":{},"minProperties":1})",
       "minProperties"},
      {R"({"type":"object","propertyNames":{"maxLength":2}})", "propertyNames"},
      {R"({"type":"object","dependentRequired":{"a":["b"]}})",
       "dependentRequired"},
      {R"({"type":"object","properties":{"a":{}},"required":["a","b"]})",
       "required"},
      {R"({"type":"object","required":["b"]})", "required"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"type":"array","contains":{"const":1}})", "contains"},
      {R"({"type":"array","prefixItems":[{}],"maxItems":1})", "maxItems"},
      {R"({"type":"array","prefixItems":[{}],"items":{}})", "prefixItems"},
      {R"({"type":"number","minimum":1})", "minimum"},
      {R"({"type":"integer","multipleOf":2})", "multipleOf"},
      {R"({"type":"integer","minimum":1,"exclusiveMinimum":1})",
       "exclusiveMinimum"},
      {R"({"minimum":1})", "minimum"},
      {R"({"type":"integer","maximum":1e300})", "maximum"},
      {R"({"type":"integer","minimum":1,"exclusiveMinimum":true})",
       "exclusiveMinimum"},
      {R"({"type":"string","format":"iri"})", "format"},
      {R"({"type":"integer","format":"int32"})", "format"},
      {R"({"type":"string","pattern":"^a$","maxLength":2})", "maxLength"},
      {R"({"type":"string","format":"date","minLength":2})", "minLength"},
      {R"({"type":"string","pattern":"^(?=a)b$"})", "pattern"},
      {R"({"type":"string","pattern":"\\bword"})", "pattern"},
      {R"({"type":"string","maxLength":5000})", "maxLength"},
      {R"({"type":"array","items":{},"maxItems":2001})", "maxItems"},
      {R"({"enum":["a"],"maxLength":0})", "maxLength"},
      {R"({"type":"string","enum":["a",5]})", "enum"},
      {R"({"type":"integer","const":"5"})", "const"},
      {R"({"oneOf":[{"type":"string"},{"type":"null"}]})", "oneOf"},
      {R"({"anyOf":[{"type":"string"},{}],"type":"string"})", "type"},
      {R"({"anyOf":[{"type":"object"}],"properties":{"a":{}}})", "properties"},
      {R"({"allOf":[{"type":"object"},{"type":"object"}]})", "allOf"},
      {R"({"$ref":"#/$defs/a","maxLength":3,"$defs":{"a":{"type":"string"}}})",
       "maxLength"},
      {R"({"type":"string","nullable":true})", "nullable"},
      {R"({"type":"string","colour":"red"})", "colour"}};
  for (const auto& one : cases) {
    const std::string message = Refusal(one.schema);
    EXPECT_TRUE(Says(message, absl::StrCat("at '#' has '", one.keyword, "'")))
        << one.schema << "\n"
        << message;
    // The same further down.
    const std::string inner = absl::StrCat(
        R"({"type":"object","properties":{"in":{"type":"array","items":)",
        one.schema, "}}}");
    if (!Says(one.schema, "$ref")) {
      EXPECT_TRUE(Says(
          Refusal(inner),
          absl::StrCat("at '#/properties/in/items' has '", one.keyword, "'")))
          << Refusal(inner);
    }
    // What is not strict does what can be done, and nobody writes to stderr.
    testing::internal::CaptureStderr();
    const auto text = FollowableSchema(one.schema, SchemaUse::kBestEffort);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_TRUE(JsonSchemaGrammar(*text).ok()) << one.schema;
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << one.schema;
  }
}

TEST_F(JsonSchemaTest, WhatIsNoSchemaOrFitsNothingIsAlwaysRefused) {
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 4000; ++i) {
    absl::StrAppend(&chain, "\"d", i, "\":{\"$ref\":\"#/$defs/d", i + 1,
                    "\"},");
  }
  chain += R"("d4000":{}}})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not JSON"},
      {"7", "not an object"},
      {"false", "not an object"},
      {R"({"type":"nonsense"})", "nonsense"},
      {R"({"type":7})", "type"},
      {R"({"type":[]})", "type"},
      {R"({"type":["object","object"]})", "twice"},
      {R"({"properties":[]})", "properties"},
      {R"({"properties":{"a":{"items":{"type":"x"}}}})", "#/properties/a"},
      {R"({"properties":{"a":false}})", "#/properties/a"},
      {R"({"enum":[]})", "enum"},
      {R"({"anyOf":[]})", "anyOf"},
      {R"({"$ref":"#/nowhere"})", "#/nowhere"},
      {R"({"$ref":"https://a.b/c"})", "https://a.b/c"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},
           "b":{"$ref":"#/$defs/a"}}})",
       "leads to itself"},
      {R"({"$ref":"#"})", "leads to itself"},
      {chain, "references"},
      {R"({"type":"string","pattern":"^(a$"})", "not closed"},
      {R"({"type":"string","pattern":"*a"})", "repeat"},
      {R"({"type":"string","minLength":-1})", "minLength"},
      {R"({"type":"string","minLength":"5"})", "minLength"},
      {R"({"type":"string","minLength":5,"maxLength":4})", "above"},
      {R"({"type":"integer","minimum":"5"})", "minimum"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "above"}};
  for (const auto& [schema, word] : cases) {
    for (const SchemaUse use : {SchemaUse::kStrict, SchemaUse::kBestEffort}) {
      EXPECT_TRUE(Says(Refusal(schema, use), word))
          << schema.substr(0, 100) << "\n"
          << Refusal(schema, use);
    }
  }
}

// The converter would look for the end of them for ever.
TEST_F(JsonSchemaTest, ReferencesInACircleAreRefusedInAnAllOfToo) {
  const std::string schema =
      R"({"allOf":[{"$ref":"#/$defs/a"},{}],
          "$defs":{"a":{"$ref":"#/$defs/a"}}})";
  EXPECT_TRUE(Says(Refusal(schema, SchemaUse::kBestEffort), "leads to itself"));
}

TEST_F(JsonSchemaTest, AnAllOfOfOneIsThatOne) {
  // As some libraries write a field with a default.
  const auto grammar = Compile(
      R"({"type":"object","properties":{"kind":{"default":"a","allOf":[
          {"$ref":"#/$defs/K"}]}},"required":["kind"],
          "$defs":{"K":{"enum":["a","b"],"type":"string"}}})");
  EXPECT_TRUE(Fits(*grammar, R"({"kind": "b"})"));
  EXPECT_FALSE(Fits(*grammar, R"({"kind": "c"})"));
  EXPECT_FALSE(Fits(*grammar, R"({"kind": {}})"));
}

TEST_F(JsonSchemaTest, TheWholeSchemaMayBeReferredTo) {
  const auto grammar = Compile(
      R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},
          {"type":"null"}]}},"required":["next"],
          "additionalProperties":false})");
  EXPECT_TRUE(Fits(*grammar, R"({"next": {"next": null}})"));
  EXPECT_FALSE(Fits(*grammar, R"({"next": {"next": 1}})"));
}

TEST_F(JsonSchemaTest, ATupleMayBeClosed) {
  const auto grammar = Compile(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"const":"x"}],
          "items":false})");
  EXPECT_TRUE(Fits(*grammar, R"([5, "x"])"));
  EXPECT_FALSE(Fits(*grammar, R"([5, "x", 6])"));
}

// Whoever converts has the stack of a thread and no more.
TEST_F(JsonSchemaTest, TheDeepestSchemaNeedsAFractionOfAStack) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 255; ++i) {
    absl::StrAppend(
        &schema, "\"d", i,
        R"(":{"type":"object","properties":{"a":{"$ref":"#/$defs/d)", i + 1,
        "\"}}},");
  }
  schema += R"("d255":{}}})";
  const auto text = FollowableSchema(schema, SchemaUse::kStrict);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto reached = RunOnStack(
      size_t{64} << 20, [&] { EXPECT_TRUE(JsonSchemaGrammar(*text).ok()); });
  ASSERT_TRUE(reached.ok());
  EXPECT_LT(*reached, size_t{4} << 20);
}

TEST_F(JsonSchemaTest, TrueAllowsAnything) {
  const auto grammar =
      Compile(R"({"type":"object","properties":{"a":true},"required":["a"]})");
  EXPECT_TRUE(Fits(*grammar, R"({"a": [1, {"b": "c"}]})"));
}

TEST_F(JsonSchemaTest, StringsFitTheirPatterns) {
  const struct {
    const char* pattern;
    std::vector<std::string> good;
    std::vector<std::string> bad;
  } cases[] = {{"^\\d{3}-\\w+$", {"123-ab_9"}, {"12-a", "123-", "123-a b"}},
               {"^ab\\.*$", {"ab", "ab..."}, {"ab.ab."}},
               {"^[^,]+,[ -~]$", {"x,y", "'',~"}, {",y", "x,"}},
               {"^.{2}$", {"ab", "$x"}, {"a", "abc"}},
               {"foo", {"foo", "a foo b"}, {"fo"}},
               {"^foo", {"foobar"}, {"a foo"}},
               {"foo$", {"a foo"}, {"foobar"}},
               {"^a|b$", {"a", "b"}, {"ab ab"}},
               {"^(a|b)+?$", {"abab"}, {"", "c"}},
               {"^(?:caf)*$", {"", "cafcaf"}, {"ca"}},
               {"^\\$\\x41\\u00e9\\/\\\\?$", {}, {}},
               {"^\\s\\S\\D$", {" ab"}, {"  b", " a1"}},
               {"^$", {""}, {"a"}},
               {"", {"", "anything"}, {}},
               {"^[\\w.+-]+@[a-z]+$", {"a.b+c@de"}, {"@de"}},
               {"^a{0}b{2,}$", {"bb", "bbb"}, {"ab", "b"}}};
  for (const auto& one : cases) {
    const nlohmann::json schema = {{"type", "string"},
                                   {"pattern", one.pattern}};
    if (!FollowablePattern(one.pattern).ok()) {
      EXPECT_TRUE(one.good.empty()) << one.pattern;
      continue;
    }
    testing::internal::CaptureStderr();
    const auto grammar = Compile(schema.dump());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_NE(grammar, nullptr) << one.pattern;
    for (const std::string& text : one.good) {
      EXPECT_TRUE(Fits(*grammar, nlohmann::json(text).dump()))
          << one.pattern << " " << text;
    }
    for (const std::string& text : one.bad) {
      EXPECT_FALSE(Fits(*grammar, nlohmann::json(text).dump()))
          << one.pattern << " " << text;
    }
    for (int i = 0; i < 20; ++i) {
      const std::string reply = RandomReply(*grammar);
      if (!reply.empty()) {
        const auto value = nlohmann::json::parse(reply, nullptr, false);
        EXPECT_TRUE(value.is_string()) << one.pattern << " " << reply;
      }
    }
  }
}

TEST_F(JsonSchemaTest, FormatsThatHaveAnExpressionAreFollowed) {
  const struct {
    const char* format;
    std::vector<std::string> good;
    std::vector<std::string> bad;
  } cases[] = {
      {"email", {"a.b+c@mail.example.org"}, {"a", "a@b", "a b@c.de", "@c.de"}},
      {"hostname", {"a", "a-b.example.org"}, {"-a", "a..b", "a b"}},
      {"ipv4", {"0.0.0.0", "255.10.1.199"}, {"256.1.1.1", "1.2.3", "01.2.3.4"}},
      {"uri",
       {"https://a.example.org:8080/b/c?d=e#f", "http://localhost"},
       {"a.example.org", "https://", "https://a b"}},
      {"ipv6",
       {"::", "::1", "fe80::1", "1:2:3:4:5:6:7:8", "2001:db8::a:b", "1::"},
       {":", "1:2", "1::2::3", "12345::"}},
      {"duration",
       {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W", "PT1H", "P2DT3S"},
       {"P", "PT", "1D", "P1S", "P1H", "PT1D"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123"}},
      {"date", {"2024-02-29"}, {"2024-13-01", "24-1-1"}},
      {"time", {"23:59:59Z"}, {"24:00:00Z"}},
      {"date-time", {"2024-02-29T01:02:03Z"}, {"2024-02-29"}}};
  for (const auto& one : cases) {
    const auto grammar = Compile(
        absl::StrCat(R"({"type":"string","format":")", one.format, R"("})"));
    ASSERT_NE(grammar, nullptr);
    for (const std::string& text : one.good) {
      EXPECT_TRUE(Fits(*grammar, absl::StrCat("\"", text, "\""))) << text;
    }
    for (const std::string& text : one.bad) {
      EXPECT_FALSE(Fits(*grammar, absl::StrCat("\"", text, "\"")))
          << one.format << " " << text;
    }
  }
}

TEST_F(JsonSchemaTest, APatternSaysWhyItIsRefused) {
  const auto status = [](const char* pattern) {
    return FollowablePattern(pattern).status();
  };
  for (const char* pattern : {"(", ")", "a)", "[a", "a**", "+", "a{3,2}", "\\",
                              "[z-a]", "\\xg0", "(|*)"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status(pattern))) << pattern;
    EXPECT_FALSE(status(pattern).message().empty());
  }
  for (const char* pattern :
       {"(?=a)", "(?<n>a)", "\\1", "\\bx", "\\p{L}", "a^", "a$b", "(^a)", "\"",
        "\\\\", "\\n", "[\"]", "a{2001}", "a{", "a{,3}", "[]"}) {
    EXPECT_TRUE(absl::IsUnimplemented(status(pattern)))
        << pattern << status(pattern);
  }
}

// It comes from a client.
TEST_F(JsonSchemaTest, ChangedPatternsAreRefusedOrFollowedSafely) {
  const std::vector<std::string> pieces = {
      "^", "$",   "(",   ")",       "(?:", "|",   "[a-z]", "[^x]",
      "[", "]",   "*",   "+",       "?",   "{2}", "{1,}",  "{",
      "}", "\\d", "\\S", ".",       "a",   "b-c", "\\",    "\u00e9",
      "-", "\"",  "\\.", "\\u0041", "/",   " ",   "\xff"};
  int followed = 0;
  for (int i = 0; i < 500; ++i) {
    std::string pattern = random_() % 2 == 0 ? "^" : "";
    for (size_t n = random_() % 7; n > 0; --n) {
      pattern += pieces[random_() % pieces.size()];
    }
    pattern += random_() % 2 == 0 ? "$" : "";
    const auto followable = FollowablePattern(pattern);
    if (!followable.ok()) {
      EXPECT_FALSE(followable.status().message().empty());
      continue;
    }
    const nlohmann::json schema = {{"type", "string"},
                                   {"pattern", *followable}};
    testing::internal::CaptureStderr();
    const auto grammar = JsonSchemaGrammar(
        schema.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    EXPECT_TRUE(grammar.ok()) << pattern << grammar.status();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << pattern;
    const auto compiled =
        Grammar::Compile(bytes_.vocabulary(), {.text = grammar.value_or("")});
    if (!compiled.ok()) {
      // Repetitions of repetitions of nothing.
      continue;
    }
    ++followed;
    const std::string reply = RandomReply(**compiled);
    if (!reply.empty()) {
      EXPECT_TRUE(nlohmann::json::parse(reply, nullptr, false).is_string())
          << pattern << " " << reply;
    }
  }
  EXPECT_GT(followed, 20);
}

}  // namespace
}  // namespace everwarm::models
