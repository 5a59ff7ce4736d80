// Sequences and what they share, in RAM.
#include "cache/kv_cache.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

TEST(KvCacheTest, AnEmptyCacheHasNothing) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Take(Range(1, 50));
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_EQ(sequence->reuse().cached, 0);
  EXPECT_EQ(sequence->reuse().matched, 0);
  EXPECT_EQ(h.cache().stats().nodes, 0);
}

TEST(KvCacheTest, AContinuationReusesAllThatWasPublished) {
  for (const CacheLayout& layout :
       {FullOnly(), FullAndWindow(), ThreeGroups(), MixedAndWindow()}) {
    CacheHarness h(layout);
    h.Generate(Range(1, 300));
    const auto next = h.Take(Range(1, 310));
    EXPECT_TRUE(next->ready());
    EXPECT_EQ(next->length(), 300);
    EXPECT_EQ(next->reuse().ram, 300);
    EXPECT_EQ(next->reuse().tier, 0);
    EXPECT_EQ(h.Check(*next), "");
  }
}

// The first two blocks of a mixed group take three pages, the others one.
TEST(KvCacheTest, BytesOfFirstBlocksOfAnotherCodecAreCounted) {
  CacheHarness h({16, {MixedGroup(16)}});
  EXPECT_EQ(h.cache().SequenceBytes(10, 16), 3 * 4096);
  EXPECT_EQ(h.cache().SequenceBytes(32, 16), 6 * 4096);
  EXPECT_EQ(h.cache().SequenceBytes(33, 16), 7 * 4096);
  EXPECT_EQ(h.cache().SharedBytes(31), 3 * 4096);
  EXPECT_EQ(h.cache().SharedBytes(64), 8 * 4096);
  const auto sequence = h.Generate(Range(1, 70));
  EXPECT_EQ(h.pool().used_bytes(), (2 * 3 + 3) * 4096);
}

TEST(KvCacheTest, OnlyWhatSeesEverythingHasFirstBlocksOfItsOwn) {
  KvCache::Config config;
  config.layout = {16, {MixedGroup(16)}};
  EXPECT_TRUE(config.Validate().ok());
  config.layout.groups[0].geometry.first = BlockGeometry(2, 32, {{2, 9}});
  EXPECT_FALSE(config.Validate().ok());
  config.layout = {16, {MixedGroup(16)}};
  config.layout.groups[0].kind = GroupKind::kWindow;
  config.layout.groups[0].window = 20;
  EXPECT_FALSE(config.Validate().ok());
}

// B-13: something must be left to compute.
TEST(KvCacheTest, TheSamePromptAgainLeavesOneTokenToCompute) {
  CacheHarness h(FullOnly());
  for (const size_t size : {1, 15, 16, 17, 32, 100}) {
    for (int i = 0; i < 3; ++i) {
      const auto sequence = h.Take(Range(1, size));
      ASSERT_LT(sequence->length(), size);
      const TokenPos known = sequence->length();
      ASSERT_TRUE(h.Compute(*sequence, Range(1 + known, size - known)).ok());
      h.cache().Publish(*sequence);
      EXPECT_EQ(h.Check(*sequence), "");
    }
    const auto again = h.Take(Range(1, size));
    EXPECT_EQ(again->length(), size - 1);
    EXPECT_EQ(again->reuse().matched, size);
  }
}

TEST(KvCacheTest, OneTokenPromptAlwaysMisses) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  EXPECT_EQ(h.Take(Range(1, 1))->length(), 0);
}

// B-11: findable at once, not when some thread gets round to it.
TEST(KvCacheTest, WhatIsPublishedIsFoundAtOnceWhileItsWriterIsAlive) {
  CacheHarness h(FullOnly());
  const auto first = h.Generate(Range(1, 100));
  const auto second = h.Take(Range(1, 100));
  EXPECT_EQ(second->length(), 99);
  EXPECT_EQ(first->blocks(0)[0], second->blocks(0)[0]);
}

TEST(KvCacheTest, ABlockIsBorrowedInPartToTheToken) {
  CacheHarness h(FullAndWindow());
  h.Generate(Range(1, 64));
  // The third block agrees in 5 tokens.
  const auto sequence = h.Take(Range(1, 37) + Range(900, 30));
  EXPECT_EQ(sequence->length(), 37);
  EXPECT_EQ(sequence->reuse().matched, 37);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(KvCacheTest, NamespacesShareNothing) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 100), "a");
  EXPECT_EQ(h.Take(Range(1, 100), "b")->reuse().matched, 0);
  EXPECT_EQ(h.Take(Range(1, 100), "")->reuse().matched, 0);
  EXPECT_EQ(h.Take(Range(1, 100), "a")->length(), 99);
}

TEST(KvCacheTest, WhatWasNotPublishedIsNotFound) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Take(Range(1, 50));
  ASSERT_TRUE(h.Compute(*sequence, Range(1, 50)).ok());
  EXPECT_EQ(h.Take(Range(1, 50))->length(), 0);
}

TEST(KvCacheTest, BorrowersExtendIndependentlyAndTheDonorStaysAsItWas) {
  CacheHarness h(FullAndWindow());
  h.Generate(Range(1, 40));
  const auto a = h.Take(Range(1, 40) + Range(500, 10));
  const auto b = h.Take(Range(1, 40) + Range(600, 10));
  const auto c = h.Take(Range(1, 38) + Range(700, 10));
  ASSERT_EQ(a->length(), 40);
  ASSERT_EQ(b->length(), 40);
  ASSERT_EQ(c->length(), 38);
  ASSERT_TRUE(h.Compute(*a, Range(500, 30)).ok());
  ASSERT_TRUE(h.Compute(*b, Range(600, 30)).ok());
  ASSERT_TRUE(h.Compute(*c, Range(700, 30)).ok());
  EXPECT_EQ(h.Check(*a), "");
  EXPECT_EQ(h.Check(*b), "");
  EXPECT_EQ(h.Check(*c), "");
  const auto donor = h.Take(Range(1, 40) + Range(800, 10));
  EXPECT_EQ(donor->length(), 40);
  EXPECT_EQ(h.Check(*donor), "");
}

TEST(KvCacheTest, TheFirstWhoExtendsGoesOnInPlaceTheOthersCopyTheTail) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  const auto a = h.Take(Range(1, 41));
  const auto b = h.Take(Range(1, 41));
  const std::byte* const tail = a->blocks(0)[2];
  ASSERT_EQ(b->blocks(0)[2], tail);
  ASSERT_TRUE(h.cache().Reserve(*a, 4).ok());
  EXPECT_EQ(h.cache().stats().tail_copies, 0);
  // Reserved, not yet written: the tail belongs to the other all the same.
  ASSERT_TRUE(h.cache().Reserve(*b, 4).ok());
  EXPECT_EQ(h.cache().stats().tail_copies, 1);
  EXPECT_EQ(a->blocks(0)[2], tail);
  EXPECT_NE(b->blocks(0)[2], tail);
  h.Write(*a, Range(41, 4));
  h.cache().Append(*a, Range(41, 4));
  h.Write(*b, Range(99, 3));
  h.cache().Append(*b, Range(99, 3));
  EXPECT_EQ(h.Check(*a), "");
  EXPECT_EQ(h.Check(*b), "");
}

TEST(KvCacheTest, ATailBorrowedInPartIsCopiedUpToTheBorrowedToken) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  const auto a = h.Take(Range(1, 36) + Range(500, 5));
  ASSERT_EQ(a->length(), 36);
  const std::byte* const tail = a->blocks(0)[2];
  ASSERT_TRUE(h.Compute(*a, Range(500, 5)).ok());
  EXPECT_NE(a->blocks(0)[2], tail);
  EXPECT_EQ(h.cache().stats().tail_copies, 1);
  EXPECT_EQ(h.Check(*a), "");
}

TEST(KvCacheTest, ReservingAgainKeepsTheClaimOnTheTail) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  const auto a = h.Take(Range(1, 41));
  const std::byte* const tail = a->blocks(0)[2];
  ASSERT_TRUE(h.cache().Reserve(*a, 3).ok());
  ASSERT_TRUE(h.cache().Reserve(*a, 50).ok());
  ASSERT_TRUE(h.cache().Reserve(*a, 1).ok());
  ASSERT_TRUE(h.Compute(*a, Range(41, 1)).ok());
  EXPECT_EQ(a->blocks(0)[2], tail);
  EXPECT_EQ(h.cache().stats().tail_copies, 0);
}

TEST(KvCacheTest, RoomThatWasNotUsedIsNoReasonToCopy) {
  CacheHarness h(FullOnly());
  const auto a = h.Generate(Range(1, 40));
  ASSERT_TRUE(h.cache().Reserve(*a, 8).ok());
  h.Write(*a, Range(41, 2));
  h.cache().Append(*a, Range(41, 2));
  h.cache().Publish(*a);
  const auto b = h.Take(Range(1, 50));
  ASSERT_EQ(b->length(), 42);
  ASSERT_TRUE(h.Compute(*b, Range(43, 8)).ok());
  EXPECT_EQ(h.cache().stats().tail_copies, 0);
  EXPECT_EQ(h.Check(*b), "");
}

TEST(KvCacheTest, ASequenceThatEndsGivesUpItsClaim) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  auto a = h.Take(Range(1, 41));
  ASSERT_TRUE(h.cache().Reserve(*a, 3).ok());
  a.reset();
  const auto b = h.Take(Range(1, 41));
  ASSERT_TRUE(h.Compute(*b, Range(41, 1)).ok());
  EXPECT_EQ(h.cache().stats().tail_copies, 0);
}

TEST(KvCacheTest, WindowBlocksThatNoLaterPositionSeesAreReleased) {
  CacheHarness h(FullAndWindow());
  const auto sequence = h.Take(Range(1, 1000));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(h.Compute(*sequence, Range(1 + 10 * i, 10)).ok());
    EXPECT_EQ(h.Check(*sequence), "");
  }
  // Seven blocks behind the one that fills, span 62.
  EXPECT_EQ(sequence->blocks(1)[54], nullptr);
  EXPECT_NE(sequence->blocks(1)[55], nullptr);
  EXPECT_NE(sequence->blocks(0)[0], nullptr);
  EXPECT_EQ(h.pool().used_bytes(), (63 + 8) * 4096);
}

// Layers as Gemma 3 270M has them, if narrower, for a context many times their
// window.
class LongContextTest : public testing::Test {
 protected:
  static constexpr TokenPos kBlock = 64;
  static constexpr TokenPos kWindow = 512;
  static CacheLayout Layout() {
    const std::vector<PlaneGeometry> planes = {{1, 16}, {1, 16}};
    return {kBlock,
            {{"full", GroupKind::kFull, 0, BlockGeometry(3, kBlock, planes)},
             {"window", GroupKind::kWindow, kWindow,
              BlockGeometry(15, kBlock, planes)}}};
  }
  void Go(Sequence& sequence, TokenPos count) {
    const auto first = static_cast<TokenId>(1 + sequence.length());
    ASSERT_TRUE(h_.Compute(sequence, Range(first, count)).ok());
  }
  // Tokens of the window group that there is room in use for.
  size_t WindowTokens() { return WindowTokens(h_); }
  static size_t WindowTokens(CacheHarness& h) {
    return h.cache().stats().groups[1].ram_used_bytes /
           h.layout().groups[1].geometry.rest.slot_bytes() * kBlock;
  }
  CacheHarness h_{Layout()};
};

TEST_F(LongContextTest, AWindowGroupHoldsItsWindowAndTwoSpans) {
  constexpr TokenPos kStep = 512;
  const auto sequence = h_.Take(Range(1, 9000));
  while (sequence->length() < 8000) {
    const TokenPos step = std::min(kStep, 8000 - sequence->length());
    // While a step runs, what it writes is there as well.
    ASSERT_TRUE(h_.cache().Reserve(*sequence, step).ok());
    ASSERT_LE(WindowTokens(), kWindow + 2 * kBlock + kStep);
    ASSERT_NO_FATAL_FAILURE(Go(*sequence, step));
    ASSERT_LE(WindowTokens(), kWindow + 2 * kBlock);
  }
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(Go(*sequence, 1));
    ASSERT_LE(WindowTokens(), kWindow + 2 * kBlock);
  }
}

TEST_F(LongContextTest, WhatIsPublishedAfterLargeStepsIsNoMoreThanThat) {
  constexpr TokenPos kStep = 512;
  auto sequence = h_.Take(Range(1, 9000));
  // The last one is of 320 tokens.
  while (sequence->length() < 8000) {
    ASSERT_NO_FATAL_FAILURE(
        Go(*sequence, std::min(kStep, 8000 - sequence->length())));
  }
  h_.cache().Publish(*sequence);
  EXPECT_LE(WindowTokens(), kWindow + 2 * kBlock);
  EXPECT_EQ(h_.Check(*sequence), "");
  // Nor when nobody lives, nor on the disk.
  sequence.reset();
  EXPECT_LE(WindowTokens(), kWindow + 2 * kBlock);
  h_.StoreAll();
  const auto on_disk = [&](GroupIndex group) {
    size_t blocks = 0;
    for (const auto& [key, entry] : h_.tier().disk()) {
      blocks += key.group == group ? 1 : 0;
    }
    return blocks;
  };
  EXPECT_EQ(on_disk(0), 8000 / kBlock);
  EXPECT_LE(on_disk(1) * kBlock, kWindow + 2 * kBlock);
  EXPECT_EQ(h_.TakeReady(Range(1, 8000))->length(), 7999);
  EXPECT_EQ(h_.TakeReady(Range(1, 8000) + Range(20000, 9))->length(), 8000);
}

TEST_F(LongContextTest, APromptAndItsReplyOverABlocksBorderHoldNoMoreEither) {
  for (TokenPos prompt = 7900; prompt < 7900 + kBlock; ++prompt) {
    SCOPED_TRACE(prompt);
    CacheHarness h(Layout());
    const auto sequence = h.Take(Range(1, 9000));
    ASSERT_TRUE(h.Compute(*sequence, Range(1, prompt)).ok());
    h.cache().Publish(*sequence);
    for (TokenPos i = 1; i <= 16; ++i) {
      ASSERT_TRUE(h.Compute(*sequence, Range(prompt + i, 1)).ok());
    }
    h.cache().Publish(*sequence);
    EXPECT_LE(WindowTokens(h), kWindow + 2 * kBlock);
  }
}

TEST_F(LongContextTest, OnlyTheWindowBeforeAPublishedPositionStays) {
  constexpr TokenPos kStep = 100;
  auto sequence = h_.Take(Range(1, 9000));
  for (const TokenPos end : {3000u, 8000u}) {
    while (sequence->length() < end) {
      ASSERT_NO_FATAL_FAILURE(Go(*sequence, kStep));
    }
    h_.cache().Publish(*sequence);
  }
  h_.StoreAll();
  sequence.reset();
  // Two published positions.
  EXPECT_LE(WindowTokens(), 2 * (kWindow + 2 * kBlock));
  std::set<TokenPos> stored;
  for (const auto& [key, entry] : h_.tier().disk()) {
    if (key.group == 1) stored.insert(entry.identity.start);
  }
  for (const TokenPos end : {3000u, 8000u}) {
    EXPECT_TRUE(stored.contains((end - kWindow + 1) / kBlock * kBlock)) << end;
    EXPECT_TRUE(stored.contains((end - 1) / kBlock * kBlock)) << end;
  }
  EXPECT_FALSE(stored.contains(1024));
  EXPECT_FALSE(stored.contains(5120));
  EXPECT_TRUE(h_.tier().problems().empty());
  h_.Restart();
  EXPECT_EQ(h_.TakeReady(Range(1, 3000) + Range(20000, 9))->length(), 3000);
  EXPECT_EQ(h_.TakeReady(Range(1, 8000) + Range(20000, 9))->length(), 8000);
}

// B-07: a window layer cannot be cut back to where its rows are gone.
TEST(KvCacheTest, AWindowModelResumesOnlyWhereItsWindowIsThere) {
  CacheHarness h(FullAndWindow());
  const auto sequence = h.Take(Range(1, 400));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(h.Compute(*sequence, Range(1 + 10 * i, 10)).ok());
  }
  h.cache().Publish(*sequence);
  const auto shorter = h.Take(Range(1, 200) + Range(900, 9));
  EXPECT_EQ(shorter->reuse().matched, 200);
  EXPECT_EQ(shorter->length(), 0);
  const auto one_less = h.Take(Range(1, 399));
  EXPECT_EQ(one_less->length(), 398);
  EXPECT_EQ(h.Check(*one_less), "");
  // The first position whose window is still there: from span 18 on, 288.
  EXPECT_EQ(h.Take(Range(1, 387) + Range(900, 9))->length(), 387);
  EXPECT_EQ(h.Take(Range(1, 386) + Range(900, 9))->length(), 0);
}

// B-37: the prompt boundary stays a resume point when the reply goes on from
// it.
TEST(KvCacheTest, TheBoundaryOfAPromptStaysAResumePointOfAWindowModel) {
  CacheHarness h(FullAndWindow());
  const auto sequence = h.Generate(Range(1, 250));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(h.Compute(*sequence, Range(251 + 10 * i, 10)).ok());
  }
  h.cache().Publish(*sequence);
  const auto other = h.Take(Range(1, 250) + Range(2000, 40));
  EXPECT_EQ(other->length(), 250);
  EXPECT_EQ(h.Check(*other), "");
  const auto next = h.Take(Range(1, 750) + Range(2000, 40));
  EXPECT_EQ(next->length(), 750);
  EXPECT_EQ(h.Check(*next), "");
}

TEST(KvCacheTest, TokensComputedTwiceAreKeptOnce) {
  CacheHarness h(FullOnly());
  const auto a = h.Take(Range(1, 64));
  const auto b = h.Take(Range(1, 64));
  ASSERT_TRUE(h.Compute(*a, Range(1, 64)).ok());
  ASSERT_TRUE(h.Compute(*b, Range(1, 64)).ok());
  EXPECT_EQ(h.pool().used_bytes(), 8 * 4096);
  h.cache().Publish(*a);
  std::byte* const before = b->blocks(0)[0];
  h.cache().Publish(*b);
  EXPECT_EQ(b->blocks(0)[0], a->blocks(0)[0]);
  // The old address is good until the next Reserve().
  *before = std::byte{7};
  EXPECT_EQ(h.pool().used_bytes(), 8 * 4096);
  ASSERT_TRUE(h.Compute(*b, Range(65, 1)).ok());
  EXPECT_EQ(h.pool().used_bytes(), 5 * 4096);
  EXPECT_EQ(h.Check(*b), "");
}

TEST(KvCacheTest, PublishingAgainChangesNothing) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 100));
  const CacheStats before = h.cache().stats();
  h.cache().Publish(*sequence);
  const CacheStats after = h.cache().stats();
  EXPECT_EQ(after.nodes, before.nodes);
  EXPECT_EQ(after.cached_blocks_in_ram, before.cached_blocks_in_ram);
  EXPECT_EQ(after.dirty_blocks, before.dirty_blocks);
}

TEST(KvCacheTest, ALongerTailTakesTheShorterOnesPlace) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 20));
  EXPECT_EQ(h.cache().stats().nodes, 2);
  ASSERT_TRUE(h.Compute(*sequence, Range(21, 5)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.cache().stats().nodes, 2);
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
  EXPECT_EQ(h.Take(Range(1, 30))->length(), 25);
}

TEST(KvCacheTest, AFailedReserveLeavesTheSequenceAsItWas) {
  // The second group's slots are larger than the address space.
  CacheLayout layout = FullOnly();
  layout.groups.push_back({"huge", GroupKind::kFull, 0,
                           BlockGeometry(1 << 12, 16, {{1 << 12, 1u << 24}})});
  BlockPool pool(Geometries(layout));
  FakeTier tier(&pool);
  FakeClock clock;
  KvCache::Config config;
  config.layout = layout;
  KvCache cache(config, &pool, &tier, &clock, NullLogger());
  const auto sequence = cache.Take(Range(1, 20), "");
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Reserve(*sequence, 20)));
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_TRUE(sequence->blocks(0).empty());
}

TEST(KvCacheTest, ALayoutWithARecurrentGroupResumesAtNothingItHasNoStateFor) {
  CacheLayout layout = FullOnly();
  layout.groups.push_back({"state", GroupKind::kRecurrent, 0, {}});
  CacheHarness h(layout);
  const auto sequence = h.Take(Range(1, 40));
  ASSERT_TRUE(h.cache().Reserve(*sequence, 40).ok());
  h.cache().Append(*sequence, Range(1, 40));
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.Take(Range(1, 40))->reuse().matched, 40);
  EXPECT_EQ(h.Take(Range(1, 40))->length(), 0);
}

TEST(KvCacheTest, CountsWhatWasAskedAndWhatWasFound) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 100));
  h.Take(Range(1, 120));
  h.Take(Range(500, 10));
  const CacheStats stats = h.cache().stats();
  EXPECT_EQ(stats.takes, 3);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.tokens_asked, 230);
  EXPECT_EQ(stats.tokens_from_ram, 100);
  EXPECT_EQ(stats.tokens_from_tier, 0);
}

TEST(KvCacheTest, SequencesMayOutliveTheCache) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 100));
  h.Stop();
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(KvCacheConfigTest, RefusesWhatMakesNoSense) {
  KvCache::Config good;
  good.layout = FullAndWindow();
  EXPECT_TRUE(good.Validate().ok());
  KvCache::Config config = good;
  config.layout.block_tokens = 24;
  EXPECT_FALSE(config.Validate().ok());
  config = good;
  config.layout.block_tokens = 32;
  EXPECT_FALSE(config.Validate().ok());
  config = good;
  config.layout.groups.clear();
  EXPECT_FALSE(config.Validate().ok());
  config = good;
  config.layout.groups[1].window = 0;
  EXPECT_FALSE(config.Validate().ok());
  config = good;
  config.ram_target_bytes = 1;
  EXPECT_FALSE(config.Validate().ok());
}

}  // namespace
}  // namespace everwarm::cache
