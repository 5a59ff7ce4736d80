// Durable copies that nobody uses leave RAM after a while.
#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

using std::chrono::seconds;

HarnessOptions IdleAfter(seconds idle) {
  HarnessOptions options;
  options.demote_idle = idle;
  return options;
}

void Wait(CacheHarness& h, seconds time) {
  h.clock().Advance(time);
  h.cache().Poll();
}

TEST(IdleTest, WhatIsDurableAndUnusedLeavesRamAfterThatLong) {
  CacheHarness h(FullOnly(), IdleAfter(seconds(300)));
  h.Generate(Range(1, 48));
  h.StoreAll();
  Wait(h, seconds(299));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 3);
  Wait(h, seconds(1));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 0);
  EXPECT_EQ(h.cache().stats().demoted_blocks, 3);
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
  EXPECT_EQ(h.pool().used_bytes(), 0);
  // It is all still there.
  const auto sequence = h.TakeReady(Range(1, 48));
  EXPECT_EQ(sequence->reuse().tier, 47);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(IdleTest, UseBeginsTheTimeAnewForTheWholePath) {
  CacheHarness h(FullOnly(), IdleAfter(seconds(300)));
  h.Generate(Range(1, 48));
  h.Generate(Range(1001, 16));
  h.StoreAll();
  Wait(h, seconds(200));
  h.TakeReady(Range(1, 48));
  Wait(h, seconds(200));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 3);
  EXPECT_EQ(h.TakeReady(Range(1, 48))->reuse().ram, 47);
  Wait(h, seconds(300));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 0);
}

TEST(IdleTest, WhatIsNotDurableStays) {
  CacheHarness h(FullOnly(), IdleAfter(seconds(300)));
  h.Generate(Range(1, 32));
  h.tier().CompleteStores(1);
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  Wait(h, seconds(10000));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 1);
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
}

TEST(IdleTest, WhatRunsStays) {
  CacheHarness h(FullOnly(), IdleAfter(seconds(300)));
  const auto sequence = h.Generate(Range(1, 32));
  h.StoreAll();
  Wait(h, seconds(10000));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(IdleTest, ZeroKeepsItForEver) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  Wait(h, seconds(100000));
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
}

TEST(IdleTest, TheHardCapHoldsWhateverWaitsForTheDisk) {
  constexpr uint64_t kCap = 10 * 4096;
  CacheHarness h(FullOnly(), {2 * 4096, kCap});
  h.tier().set_max_pending_stores(2);
  for (TokenId i = 0; i < 40; ++i) {
    h.Generate(Range(1000 * i, 40));
    h.cache().Poll();
    EXPECT_LE(h.pool().used_bytes(), kCap) << i;
  }
  EXPECT_GT(h.cache().stats().lost_blocks, 0);
  h.StoreAll();
  h.cache().Poll();
  EXPECT_LE(h.pool().used_bytes(), 2 * 4096);
}

}  // namespace
}  // namespace everwarm::cache
