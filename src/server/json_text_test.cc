#include "server/json_text.h"

#include <gtest/gtest.h>

#include <string>

#include "server/api_error.h"

namespace everwarm::server {
namespace {

TEST(JsonTextTest, AnObjectIsRead) {
  const auto value = ParseJsonObject(R"({"a":[1,"]}"],"b":"\"[{"})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][1], "]}");
}

TEST(JsonTextTest, WhatIsNoJsonIsRefusedWithThePlace) {
  for (const char* body :
       {"", " ", "{", "{\"a\":}", "hello", "{\"a\":NaN}", "{\"a\":Infinity}",
        "{\"a\":1e999}", "{\"a\":1}x", "{'a':1}", "{\"a\":01}",
        "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\ud800x\"}",
        "{\"a\":\"\xc3(\"}", "\xff\xfe{\0"}) {
    const auto value = ParseJsonObject(body);
    ASSERT_FALSE(value.ok()) << body;
    const ApiError error = RefusalError(value.status());
    EXPECT_EQ(error.http_status, 400);
    EXPECT_NE(error.message.find("not valid JSON"), std::string::npos);
    // The message may quote broken bytes; the JSON of the error is whole.
    EXPECT_FALSE(Json::parse(ErrorBody(error), nullptr, false).is_discarded());
  }
}

TEST(JsonTextTest, WhatIsNoObjectIsRefused) {
  for (const char* body : {"[]", "7", "null", "\"a\"", "true"}) {
    EXPECT_FALSE(ParseJsonObject(body).ok()) << body;
  }
}

TEST(JsonTextTest, DeepNestingIsRefusedBeforeItCostsMemory) {
  const std::string deepest = "{\"a\":" + std::string(kMaxJsonDepth - 1, '[') +
                              std::string(kMaxJsonDepth - 1, ']') + "}";
  EXPECT_TRUE(ParseJsonObject(deepest).ok());
  const std::string deeper = "{\"a\":" + std::string(kMaxJsonDepth, '[') +
                             std::string(kMaxJsonDepth, ']') + "}";
  EXPECT_FALSE(ParseJsonObject(deeper).ok());
  EXPECT_FALSE(ParseJsonObject(std::string(10'000'000, '[')).ok());
}

TEST(JsonTextTest, AnObjectWithTooManyKeysIsRefusedBeforeItCostsTime) {
  const auto object = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) {
      text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
    }
    return text + "}";
  };
  EXPECT_TRUE(ParseJsonObject(object(kMaxJsonKeys)).ok());
  EXPECT_FALSE(ParseJsonObject(object(kMaxJsonKeys + 1)).ok());
  // Each object counts for itself, and colons in texts are none.
  EXPECT_TRUE(ParseJsonObject("{\"a\":[" + object(2000) + "," + object(2000) +
                              "],\"b\":\"" + std::string(5000, ':') + "\"}")
                  .ok());
  EXPECT_FALSE(
      ParseJsonObject("{\"a\":[{},{}," + object(1'000'000) + "]}").ok());
}

TEST(JsonTextTest, KeysKeepTheirOrder) {
  EXPECT_EQ(DumpJson(*ParseJsonObject(R"({"z":1,"a":{"y":2,"b":3}})")),
            R"({"z":1,"a":{"y":2,"b":3}})");
}

TEST(JsonTextTest, AByteOrderMarkBeforeTheBodyIsNothing) {
  EXPECT_TRUE(ParseJsonObject("\xEF\xBB\xBF{\"a\":1}").ok());
}

TEST(JsonTextTest, BrokenBytesLeaveAsValidUtf8) {
  EXPECT_EQ(DumpJson({{"a", "x\xffy"}}), "{\"a\":\"x\xEF\xBF\xBDy\"}");
}

TEST(JsonTextTest, QuotationsAreShort) {
  EXPECT_EQ(Quoted(Json("a")), "'a'");
  EXPECT_EQ(Quoted(Json(7)), "7");
  EXPECT_EQ(Quoted(Json::array({1, 2})), "an array of 2");
  EXPECT_LT(Quoted(Json(std::string(1000, 'x'))).size(), 100u);
}

TEST(ApiErrorTest, OurFaultAndTheirFaultHaveDifferentNumbers) {
  EXPECT_EQ(RefusalError(absl::InvalidArgumentError("x")).http_status, 400);
  EXPECT_EQ(RefusalError(absl::UnimplementedError("x")).http_status, 400);
  EXPECT_EQ(RefusalError(absl::InternalError("x")).http_status, 500);
  const ApiError full = RefusalError(absl::ResourceExhaustedError("x"));
  EXPECT_EQ(full.http_status, 429);
  EXPECT_GT(full.retry_after_s, 0);
  const ApiError stops = RefusalError(absl::UnavailableError("x"));
  EXPECT_EQ(stops.http_status, 503);
  EXPECT_GT(stops.retry_after_s, 0);
  EXPECT_EQ(ReplyFailureError(absl::InternalError("x")).http_status, 500);
  EXPECT_EQ(ReplyFailureError(absl::ResourceExhaustedError("x")).http_status,
            503);
}

TEST(ApiErrorTest, TheBodyHasTheFourFieldsOfTheApi) {
  const Json plain = Json::parse(ErrorBody(HttpError(404, "gone")))["error"];
  EXPECT_EQ(plain["message"], "gone");
  EXPECT_EQ(plain["type"], "invalid_request_error");
  EXPECT_TRUE(plain["param"].is_null());
  EXPECT_EQ(plain["code"], "not_found");
  const Json full = Json::parse(
      ErrorBody(RefusalError(InvalidRequest("m", "field", "word"))))["error"];
  EXPECT_EQ(full["param"], "field");
  EXPECT_EQ(full["code"], "word");
}

}  // namespace
}  // namespace everwarm::server
