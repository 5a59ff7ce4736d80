#include "engine/reply_endings.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::engine {
namespace {

using cache::CacheHarness;
using cache::FullOnly;
using cache::Range;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ReplyEndingsTest : public testing::Test {
 protected:
  std::shared_ptr<ReplyChannel> End(std::vector<TokenId> tokens,
                                    milliseconds wait) {
    auto channel = std::make_shared<ReplyChannel>();
    endings_.Add({.channel = channel,
                  .tokens = std::move(tokens),
                  .wait_durable = wait});
    return channel;
  }
  // The tokens that the last event calls durable; nothing before it came.
  static std::optional<uint32_t> Ended(ReplyChannel& channel) {
    const std::optional<ReplyEvent> event = channel.Next(milliseconds(0));
    if (!event.has_value()) {
      return std::nullopt;
    }
    return std::get<FinishedEvent>(*event).usage.durable_tokens;
  }
  void Turn() {
    h_.cache().Poll();
    endings_.Settle();
  }

  CacheHarness h_{FullOnly()};
  ReplyEndings endings_{&h_.cache(), &h_.clock()};
};

TEST_F(ReplyEndingsTest, WithoutAWishToWaitItEndsAtOnceAndSaysWhatIsDurable) {
  h_.Generate(Range(1, 40));
  h_.tier().CompleteStores(1);
  h_.cache().Poll();
  EXPECT_EQ(Ended(*End(Range(1, 40), milliseconds(0))), 16);
  EXPECT_TRUE(endings_.empty());
}

TEST_F(ReplyEndingsTest, ItWaitsUntilTheWholeConversationIsDurable) {
  h_.Generate(Range(1, 40));
  const auto channel = End(Range(1, 40), seconds(30));
  h_.tier().CompleteStores(2);
  Turn();
  EXPECT_EQ(Ended(*channel), std::nullopt);
  h_.StoreAll();
  Turn();
  EXPECT_EQ(Ended(*channel), 40);
  EXPECT_TRUE(endings_.empty());
}

TEST_F(ReplyEndingsTest, AFailedWriteEndsTheWaitAndIsNotCalledDurable) {
  h_.Generate(Range(1, 40));
  const auto channel = End(Range(1, 40), seconds(30));
  h_.tier().CompleteStores(1);
  h_.tier().FailStores(absl::ResourceExhaustedError("full"));
  Turn();
  EXPECT_EQ(Ended(*channel), 16);
}

TEST_F(ReplyEndingsTest, TheWaitHasAnEnd) {
  h_.Generate(Range(1, 40));
  const auto channel = End(Range(1, 40), seconds(30));
  h_.clock().Advance(seconds(29));
  Turn();
  EXPECT_EQ(Ended(*channel), std::nullopt);
  h_.clock().Advance(seconds(1));
  Turn();
  EXPECT_EQ(Ended(*channel), 0);
}

TEST_F(ReplyEndingsTest, WhatIsAlreadyDurableOrCannotBeIsNotWaitedFor) {
  h_.Generate(Range(1, 40));
  h_.StoreAll();
  EXPECT_EQ(Ended(*End(Range(1, 40), seconds(30))), 40);
  // Nothing was published.
  EXPECT_EQ(Ended(*End({}, seconds(30))), 0);
}

TEST_F(ReplyEndingsTest, AReaderThatLeftIsForgotten) {
  h_.Generate(Range(1, 40));
  End(Range(1, 40), seconds(30))->Cancel();
  Turn();
  EXPECT_TRUE(endings_.empty());
}

TEST_F(ReplyEndingsTest, AHurrySendsAllWithTheTruth) {
  h_.Generate(Range(1, 40));
  const auto channel = End(Range(1, 40), seconds(30));
  h_.tier().CompleteStores(1);
  h_.cache().Poll();
  endings_.SendAll();
  EXPECT_EQ(Ended(*channel), 16);
}

}  // namespace
}  // namespace everwarm::engine
