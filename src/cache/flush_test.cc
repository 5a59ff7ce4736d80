// Flushes: what they wait for and what they say.
#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

constexpr uint64_t kSlot = 4096;
constexpr uint64_t kTokenBytes = 32;

TEST(FlushTest, WithNothingDirtyIsDurableAtOnce) {
  CacheHarness h(FullOnly());
  const auto report = h.cache().FlushOutcome(h.cache().BeginFlush());
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->entries, 0);
}

TEST(FlushTest, EndsWhenAllThatWasPublishedIsDurable) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 50));
  const uint64_t ticket = h.cache().BeginFlush();
  EXPECT_EQ(h.cache().FlushOutcome(ticket), std::nullopt);
  const FlushReport now = h.cache().FlushNow(ticket);
  EXPECT_FALSE(now.durable());
  EXPECT_EQ(now.pending, 4);
  EXPECT_EQ(now.pending_bytes, 50 * kTokenBytes);
  h.tier().CompleteStores(3);
  h.cache().Poll();
  EXPECT_EQ(h.cache().FlushOutcome(ticket), std::nullopt);
  EXPECT_EQ(h.cache().FlushNow(ticket).pending, 1);
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->flushed, 4);
  EXPECT_EQ(report->pending, 0);
  EXPECT_EQ(report->entries, 4);
  EXPECT_EQ(report->longest_durable_prefix, 50);
  EXPECT_EQ(h.cache().FlushOutcome(ticket), std::nullopt);
}

TEST(FlushTest, DoesNotWaitForWhatIsPublishedLater) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 16));
  const uint64_t ticket = h.cache().BeginFlush();
  h.Generate(Range(1001, 16));
  h.tier().CompleteStores(1);
  h.cache().Poll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
}

TEST(FlushTest, AFailedWriteMakesItNotDurableAndStaysDirty) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  // Under way before the flush, so it is tried once more for it.
  const uint64_t ticket = h.cache().BeginFlush();
  h.tier().CompleteStores(1);
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  EXPECT_EQ(h.cache().FlushOutcome(ticket), std::nullopt);
  ASSERT_EQ(h.tier().stores().size(), 1);
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->durable());
  EXPECT_EQ(report->failed, 1);
  EXPECT_EQ(report->flushed, 1);
  EXPECT_EQ(report->pending, 0);
  EXPECT_EQ(report->longest_durable_prefix, 16);
  EXPECT_EQ(h.cache().stats().dirty_blocks, 1);
}

TEST(FlushTest, TriesAtOnceWhatWaitsForItsRetry) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 16));
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  ASSERT_TRUE(h.tier().stores().empty());
  const uint64_t ticket = h.cache().BeginFlush();
  EXPECT_EQ(h.tier().stores().size(), 1);
  h.StoreAll();
  EXPECT_TRUE(h.cache().FlushOutcome(ticket)->durable());
}

TEST(FlushTest, IsNotDurableWhileWhatTheTierLostIsNotWrittenAgain) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  h.tier().Lose(h.tier().disk().begin()->first);
  h.cache().Poll();
  const uint64_t failing = h.cache().BeginFlush();
  h.tier().FailStores(absl::UnavailableError("EIO"));
  h.cache().Poll();
  h.tier().FailStores(absl::UnavailableError("EIO"));
  h.cache().Poll();
  const auto report = h.cache().FlushOutcome(failing);
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->durable());
  const uint64_t ticket = h.cache().BeginFlush();
  h.StoreAll();
  EXPECT_TRUE(h.cache().FlushOutcome(ticket)->durable());
}

TEST(FlushTest, EndsWhereAQueuedBlockIsFoundOnTheDiskAndLeavesRam) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 48));
  h.StoreAll();
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (entry.identity.start == 0) {
      h.tier().Drop(key);
    }
  }
  // Nothing stays in RAM that is on the disk, and one write runs at a time.
  h.set_options({.ram_target_bytes = 0});
  h.Restart();
  h.tier().set_max_pending_stores(1);
  h.Generate(Range(1, 16));
  h.Generate(Range(1001, 32));
  h.Generate(Range(1, 48));
  const uint64_t ticket = h.cache().BeginFlush();
  // With the first block the two that waited for it are known again; what is
  // ahead of them in the queue keeps it full.
  h.tier().CompleteStores(1);
  h.cache().Poll();
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
}

TEST(FlushTest, AVersionThatWasReplacedWhileItsWriteRanIsTriedToo) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 10));
  ASSERT_TRUE(h.Compute(*sequence, Range(11, 4)).ok());
  h.cache().Publish(*sequence);
  const uint64_t ticket = h.cache().BeginFlush();
  h.tier().CompleteStores(1);
  h.cache().Poll();
  EXPECT_EQ(h.cache().FlushOutcome(ticket), std::nullopt);
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->longest_durable_prefix, 14);
}

TEST(FlushTest, ConcurrentFlushesEachGetTheirOutcome) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 16));
  const uint64_t first = h.cache().BeginFlush();
  h.Generate(Range(1001, 16));
  const uint64_t second = h.cache().BeginFlush();
  EXPECT_NE(first, second);
  h.tier().CompleteStores(1);
  h.cache().Poll();
  EXPECT_TRUE(h.cache().FlushOutcome(first)->durable());
  EXPECT_EQ(h.cache().FlushOutcome(second), std::nullopt);
  h.tier().FailStores(absl::UnknownError("io"));
  h.cache().Poll();
  h.tier().FailStores(absl::UnknownError("io"));
  h.cache().Poll();
  EXPECT_FALSE(h.cache().FlushOutcome(second)->durable());
}

TEST(FlushTest, BlocksLostDuringItAreDroppedAndLaterMissing) {
  CacheHarness h(FullOnly(), {0, kSlot});
  h.tier().set_max_pending_stores(0);
  h.Generate(Range(1, 32));
  const uint64_t ticket = h.cache().BeginFlush();
  h.cache().Poll();
  h.tier().set_max_pending_stores(10);
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->durable());
  EXPECT_EQ(report->dropped, 1);
  EXPECT_EQ(report->missing, 1);
  // Every later flush says so, until something durable covers it.
  const auto later = h.cache().FlushOutcome(h.cache().BeginFlush());
  EXPECT_FALSE(later->durable());
  EXPECT_EQ(later->dropped, 0);
  EXPECT_EQ(later->missing, 1);
  h.Generate(Range(1, 40));
  h.StoreAll();
  const auto covered = h.cache().FlushOutcome(h.cache().BeginFlush());
  EXPECT_TRUE(covered->durable());
  EXPECT_EQ(covered->missing, 0);
}

TEST(FlushTest, ALostTailIsCoveredByALongerOne) {
  CacheHarness h(FullOnly(), {0, 0});
  h.tier().set_max_pending_stores(0);
  h.Generate(Range(1, 10));
  h.cache().Poll();
  EXPECT_EQ(h.cache().FlushNow(0).missing, 1);
  h.tier().set_max_pending_stores(10);
  h.Generate(Range(1, 16));
  h.StoreAll();
  EXPECT_TRUE(h.cache().FlushOutcome(h.cache().BeginFlush())->durable());
}

// DUR-9.
TEST(FlushTest, WhatTheTiersCapEvictedDoesNotMakeItFail) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.tier().Drop(h.tier().disk().begin()->first);
  h.cache().Poll();
  const auto report = h.cache().FlushOutcome(h.cache().BeginFlush());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->entries, 3);
}

TEST(FlushTest, LongestDurablePrefixIsWhereEveryGroupCouldGoOn) {
  CacheHarness h(FullAndWindow());
  auto sequence = h.Generate(Range(1, 150));
  h.StoreAll();
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(h.Compute(*sequence, Range(151 + 10 * i, 10)).ok());
  }
  h.cache().Publish(*sequence);
  h.StoreAll();
  EXPECT_EQ(h.cache().FlushNow(0).longest_durable_prefix, 550);
  const auto drop_window_block_at = [&](TokenPos start) {
    const auto disk = h.tier().disk();
    for (const auto& [key, entry] : disk) {
      if (key.group == 1 && entry.identity.start == start) {
        h.tier().Drop(key);
      }
    }
    h.cache().Poll();
  };
  // The window before 544 is still whole.
  drop_window_block_at(544);
  EXPECT_EQ(h.cache().FlushNow(0).longest_durable_prefix, 544);
  // Now the first turn's end is the last position with a whole window.
  drop_window_block_at(480);
  EXPECT_EQ(h.cache().FlushNow(0).longest_durable_prefix, 150);
  h.clock().Advance(std::chrono::seconds(2));
  EXPECT_EQ(h.cache().stats().longest_durable_prefix, 150);
}

}  // namespace
}  // namespace everwarm::cache
