// What a conversation is told about its durability, and the order in which a
// stop writes.
#include "cache/durability.h"

#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

void DropBlock(CacheHarness& h, GroupIndex group, TokenPos start) {
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (key.group == group && entry.identity.start == start) {
      h.tier().Drop(key);
    }
  }
}

TEST(DurabilityTest, GrowsBlockByBlockAsWritesEnd) {
  CacheHarness h(FullOnly());
  const Tokens tokens = Range(1, 50);
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 0);
  EXPECT_FALSE(h.cache().DurabilityOf(tokens, "").pending);
  h.Generate(tokens);
  for (const TokenPos durable : {16, 32, 48, 50}) {
    EXPECT_TRUE(h.cache().DurabilityOf(tokens, "").pending);
    h.tier().CompleteStores(1);
    h.cache().Poll();
    EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, durable);
  }
  EXPECT_FALSE(h.cache().DurabilityOf(tokens, "").pending);
  EXPECT_EQ(h.cache().stats().durable_tokens, 50);
}

TEST(DurabilityTest, AHoleEndsWhatIsDurable) {
  CacheHarness h(FullOnly());
  const Tokens tokens = Range(1, 64);
  h.Generate(tokens);
  h.StoreAll();
  ASSERT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 64);
  DropBlock(h, 0, 16);
  h.cache().Poll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 16);
  EXPECT_EQ(h.cache().stats().durable_tokens, 48);
}

TEST(DurabilityTest, AFailedWriteIsNotPendingUntilItsRetryIsDue) {
  CacheHarness h(FullOnly());
  const Tokens tokens = Range(1, 16);
  h.Generate(tokens);
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 0);
  EXPECT_FALSE(h.cache().DurabilityOf(tokens, "").pending);
  h.clock().Advance(std::chrono::seconds(5));
  EXPECT_TRUE(h.cache().DurabilityOf(tokens, "").pending);
  h.StoreAll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 16);
}

TEST(DurabilityTest, OfALongerBlockItsBeginningIsDurableToo) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 30));
  h.StoreAll();
  EXPECT_EQ(h.cache().DurabilityOf(Range(1, 20), "").tokens, 20);
  // What has not been written yet is not.
  h.Generate(Range(1, 40));
  EXPECT_EQ(h.cache().DurabilityOf(Range(1, 40), "").tokens, 30);
}

TEST(DurabilityTest, NamespacesAndOtherTokensAreNotDurable) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  EXPECT_EQ(h.cache().DurabilityOf(Range(1, 32), "other").tokens, 0);
  EXPECT_EQ(h.cache().DurabilityOf(Range(2, 32), "").tokens, 0);
}

TEST(DurabilityTest, EveryGroupMustHaveWhatItNeeds) {
  CacheHarness h(FullAndWindow());
  const Tokens tokens = Range(1, 150);
  h.Generate(tokens);
  h.StoreAll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 150);
  // The window before 144 is still whole.
  DropBlock(h, 1, 144);
  h.cache().Poll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 144);
  // No position has its window any more, although the full group has them all.
  DropBlock(h, 1, 128);
  h.cache().Poll();
  EXPECT_EQ(h.cache().DurabilityOf(tokens, "").tokens, 0);
}

TEST(DurabilityTest, WithoutATierNothingIsDurableOrPending) {
  CacheHarness h(FullOnly());
  h.tier().set_enabled(false);
  h.Stop();
  h.Start();
  h.Generate(Range(1, 32));
  const PrefixDurability durability = h.cache().DurabilityOf(Range(1, 32), "");
  EXPECT_EQ(durability.tokens, 0);
  EXPECT_FALSE(durability.pending);
}

// The starts of the blocks that the tier was given, with the first token of
// each conversation: {conversation, start}.
std::vector<std::pair<TokenId, TokenPos>> Written(const FakeTier& tier) {
  std::vector<std::pair<TokenId, TokenPos>> order;
  for (const StoreRequest& request : tier.stores()) {
    const BlockIdentity& identity = request.identity;
    order.emplace_back(
        identity.tokens[0] - static_cast<TokenId>(identity.start),
        identity.start);
  }
  return order;
}

TEST(DurabilityTest, AStopWritesTheNewestConversationFirstFromItsStart) {
  CacheHarness h(FullOnly());
  h.tier().set_max_pending_stores(0);
  h.Generate(Range(1000, 40));
  h.Generate(Range(2000, 40));
  h.Generate(Range(3000, 20));
  // The first is used again, and becomes the newest.
  h.TakeReady(Range(1000, 40));
  h.cache().WriteNewestFirst();
  h.tier().set_max_pending_stores(100);
  h.cache().Poll();
  using Order = std::vector<std::pair<TokenId, TokenPos>>;
  const Order order = Written(h.tier());
  ASSERT_EQ(order.size(), 8u);
  EXPECT_EQ(Order(order.begin() + 3, order.end()),
            (Order{{3000, 0}, {3000, 16}, {2000, 0}, {2000, 16}, {2000, 32}}));
  EXPECT_EQ(Order(order.begin(), order.begin() + 2),
            (Order{{1000, 0}, {1000, 16}}));
}

TEST(DurabilityTest, WhatTheTierHasNotBegunGoesInTheNewOrderToo) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1000, 40));
  h.Generate(Range(2000, 40));
  ASSERT_EQ(Written(h.tier()).size(), 6u);
  h.cache().WriteNewestFirst();
  using Order = std::vector<std::pair<TokenId, TokenPos>>;
  EXPECT_EQ(Written(h.tier()), (Order{{2000, 0},
                                      {2000, 16},
                                      {2000, 32},
                                      {1000, 0},
                                      {1000, 16},
                                      {1000, 32}}));
  const uint64_t ticket = h.cache().BeginFlush();
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->flushed, 6u);
}

}  // namespace
}  // namespace everwarm::cache
