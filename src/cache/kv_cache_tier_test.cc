// What goes to the tier, comes back from it, and leaves RAM.
#include <algorithm>

#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

constexpr uint64_t kSlot = 4096;

// RAM for that many blocks; beyond twice as many even what is not durable goes.
HarnessOptions Room(uint64_t blocks) {
  return {blocks * kSlot, 2 * blocks * kSlot};
}

std::vector<TokenPos> QueuedStarts(const FakeTier& tier) {
  std::vector<TokenPos> starts;
  for (const StoreRequest& request : tier.stores()) {
    starts.push_back(request.identity.start);
  }
  return starts;
}

TEST(KvCacheStoreTest, ParentsAreStoredBeforeTheirChildren) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 70));
  EXPECT_EQ(QueuedStarts(h.tier()), (std::vector<TokenPos>{0, 16, 32, 48, 64}));
  EXPECT_EQ(h.cache().stats().dirty_blocks, 5);
  h.StoreAll();
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  EXPECT_EQ(h.tier().disk().size(), 5);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, OnlyTheNewBlocksOfALongerConversationAreStored) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Generate(Range(1, 100));
  EXPECT_EQ(QueuedStarts(h.tier()), (std::vector<TokenPos>{64, 80, 96}));
}

TEST(KvCacheStoreTest, ARefusedStoreStaysDirtyAndGoesOnLater) {
  CacheHarness h(FullOnly());
  h.tier().set_max_pending_stores(2);
  h.Generate(Range(1, 80));
  EXPECT_EQ(QueuedStarts(h.tier()), (std::vector<TokenPos>{0, 16}));
  EXPECT_EQ(h.cache().stats().dirty_blocks, 5);
  h.tier().CompleteStores(1);
  h.cache().Poll();
  EXPECT_EQ(QueuedStarts(h.tier()), (std::vector<TokenPos>{16, 32}));
  h.StoreAll();
  EXPECT_EQ(h.tier().disk().size(), 5);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, AFailedStoreIsTriedAgainAfterAWhile) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 16));
  h.tier().FailStores(absl::ResourceExhaustedError("disk full"));
  h.cache().Poll();
  EXPECT_EQ(h.tier().stores().size(), 0);
  EXPECT_EQ(h.cache().stats().dirty_blocks, 1);
  h.clock().Advance(std::chrono::milliseconds(4999));
  h.cache().Poll();
  EXPECT_EQ(h.tier().stores().size(), 0);
  h.clock().Advance(std::chrono::milliseconds(1));
  h.cache().Poll();
  EXPECT_EQ(h.tier().stores().size(), 1);
  h.StoreAll();
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  // It was usable all the time.
  EXPECT_EQ(h.Take(Range(1, 20))->length(), 16);
}

TEST(KvCacheStoreTest, ATierThatTakesNothingIsAskedAgainAfterAWhile) {
  CacheHarness h(FullOnly());
  h.tier().set_store_refusal(absl::UnavailableError("broken"));
  h.Generate(Range(1, 40));
  EXPECT_EQ(h.cache().stats().dirty_blocks, 3);
  h.tier().set_store_refusal(absl::OkStatus());
  h.cache().Poll();
  EXPECT_TRUE(h.tier().stores().empty());
  h.clock().Advance(std::chrono::seconds(5));
  h.cache().Poll();
  EXPECT_EQ(QueuedStarts(h.tier()), (std::vector<TokenPos>{0, 16, 32}));
}

TEST(KvCacheStoreTest, ATailGrowsInPlaceWhileItIsBeingStored) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 20));
  ASSERT_EQ(h.tier().stores().size(), 2);
  const std::byte* const tail = sequence->blocks(0)[1];
  ASSERT_TRUE(h.Compute(*sequence, Range(21, 6)).ok());
  EXPECT_EQ(sequence->blocks(0)[1], tail);
  EXPECT_EQ(h.cache().stats().tail_copies, 0);
  h.StoreAll();
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, TheShorterTailIsRemovedOnlyAfterTheLongerIsDurable) {
  CacheHarness h(FullAndWindow());
  const auto sequence = h.Generate(Range(1, 20));
  h.StoreAll();
  ASSERT_EQ(h.tier().disk().size(), 4);
  ASSERT_TRUE(h.Compute(*sequence, Range(21, 6)).ok());
  h.cache().Publish(*sequence);
  h.cache().Poll();
  EXPECT_TRUE(h.tier().removed().empty());
  EXPECT_EQ(h.tier().disk().size(), 4);
  h.tier().CompleteStores(1);
  EXPECT_EQ(h.tier().disk().size(), 5);
  h.cache().Poll();
  EXPECT_EQ(h.tier().removed().size(), 1);
  h.StoreAll();
  EXPECT_EQ(h.tier().removed().size(), 2);
  EXPECT_EQ(h.tier().disk().size(), 4);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, ATailThatGrowsDuringItsWriteIsWrittenAgain) {
  CacheHarness h(FullOnly());
  const auto sequence = h.Generate(Range(1, 10));
  ASSERT_TRUE(h.Compute(*sequence, Range(11, 4)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.tier().stores().size(), 1);
  h.StoreAll();
  ASSERT_EQ(h.tier().disk().size(), 1);
  EXPECT_EQ(h.tier().disk().begin()->second.identity.tokens, Range(1, 14));
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, WhatIsDurableIsNotStoredAgainByWhoComputedItTwice) {
  CacheHarness h(FullOnly(), Room(0));
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.cache().Poll();
  ASSERT_EQ(h.pool().used_bytes(), 0);
  // Computed without being taken from the tier.
  const auto sequence = h.Take(Range(1, 1));
  ASSERT_TRUE(h.Compute(*sequence, Range(1, 64)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  EXPECT_TRUE(h.tier().stores().empty());
}

TEST(KvCacheStoreTest, ABeginningThatTwoNodesShareIsStoredOnce) {
  CacheHarness h(FullOnly(), {0, 100 * kSlot});
  const Tokens common = Range(1, 10);
  // [common] is durable; [common, 600...] takes its node, and is lost.
  h.Generate(common);
  h.StoreAll();
  h.tier().set_max_pending_stores(0);
  const auto a = h.Generate(common + Range(600, 6));
  const auto b = h.Generate(common + Range(500, 6));
  h.tier().set_max_pending_stores(50);
  for (int i = 0; i < 2; ++i) {
    const auto again = h.Take(Range(1, 1));
    ASSERT_TRUE(h.Compute(*again, common).ok());
    h.cache().Publish(*again);
  }
  h.StoreAll();
  EXPECT_TRUE(h.tier().problems().empty());
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  EXPECT_TRUE(h.cache().FlushOutcome(h.cache().BeginFlush())->durable());
}

TEST(KvCacheStoreTest, WhatTheTierDroppedIsNotRewrittenUntilItIsUsed) {
  CacheHarness h(FullOnly());
  auto sequence = h.Generate(Range(1, 32));
  h.StoreAll();
  h.tier().Drop(h.tier().disk().begin()->first);
  for (int i = 0; i < 3; ++i) {
    h.clock().Advance(std::chrono::seconds(10));
    h.cache().Poll();
  }
  EXPECT_TRUE(h.tier().stores().empty());
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  EXPECT_EQ(h.Take(Range(1, 40))->length(), 32);
  // A longer conversation needs it on the disk again.
  ASSERT_TRUE(h.Compute(*sequence, Range(33, 1)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.tier().stores().size(), 2);
}

TEST(KvCacheStoreTest, WhatTheTierLostIsWrittenAgainFromRam) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  const BlockKey lost = h.tier().disk().begin()->first;
  h.tier().Lose(lost);
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().dirty_blocks, 1);
  ASSERT_EQ(h.tier().stores().size(), 1);
  EXPECT_EQ(h.tier().stores()[0].identity.key, lost);
  h.StoreAll();
  EXPECT_TRUE(h.tier().disk().contains(lost));
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheStoreTest, TheRamCopyOfWhatTheTierLostIsKeptUntilItIsDurable) {
  CacheHarness h(FullOnly(), Room(2));
  h.Generate(Range(1, 32));
  h.StoreAll();
  h.tier().Lose(h.tier().disk().begin()->first);
  h.tier().set_max_pending_stores(0);
  h.cache().Poll();
  h.Generate(Range(1001, 32));
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
  EXPECT_EQ(h.TakeReady(Range(1, 40))->length(), 32);
}

TEST(KvCacheStoreTest, WhatIsLostWhileAReadOfItFailsIsWrittenFromRam) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  h.Restart();
  // The disk does not answer, and it is computed; then it answers badly.
  const auto sequence = h.Take(Range(1, 40));
  h.clock().Advance(std::chrono::seconds(5));
  h.cache().Poll();
  ASSERT_TRUE(sequence->ready());
  ASSERT_TRUE(h.Compute(*sequence, Range(1, 32)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.cache().stats().dirty_blocks, 0);
  h.tier().FailLoads(absl::DataLossError("damaged"));
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().dirty_blocks, 2);
  h.StoreAll();
  EXPECT_EQ(h.tier().disk().size(), 2);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheLoadTest, BlocksOnTheTierAreReadForWhoNeedsThem) {
  for (const CacheLayout& layout :
       {FullOnly(), FullAndWindow(), ThreeGroups(), MixedAndWindow()}) {
    CacheHarness h(layout, Room(0));
    h.Generate(Range(1, 300));
    h.StoreAll();
    h.cache().Poll();
    ASSERT_EQ(h.pool().used_bytes(), 0);
    const auto sequence = h.Take(Range(1, 310));
    EXPECT_FALSE(sequence->ready());
    h.tier().CompleteLoads(3);
    h.cache().Poll();
    EXPECT_FALSE(sequence->ready());
    h.tier().CompleteLoads();
    h.cache().Poll();
    EXPECT_TRUE(sequence->ready());
    EXPECT_EQ(sequence->length(), 300);
    EXPECT_EQ(sequence->reuse().tier, 300);
    EXPECT_EQ(sequence->reuse().ram, 0);
    EXPECT_EQ(h.Check(*sequence), "");
    EXPECT_TRUE(h.tier().problems().empty());
  }
}

TEST(KvCacheLoadTest, OnlyTheWindowThatTheResumePointSeesIsRead) {
  CacheHarness h(FullAndWindow());
  h.Generate(Range(1, 400));
  h.StoreAll();
  h.Restart();
  const auto sequence = h.Take(Range(1, 410));
  // 25 full blocks; of the window [301, 399], spans 18 to 24.
  EXPECT_EQ(h.tier().loads().size(), 25 + 7);
}

TEST(KvCacheLoadTest, ReuseTellsRamFromTier) {
  CacheHarness h(FullOnly(), Room(2));
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.cache().Poll();
  ASSERT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
  const auto sequence = h.TakeReady(Range(1, 70));
  EXPECT_EQ(sequence->reuse().cached, 64);
  EXPECT_EQ(sequence->reuse().ram, 32);
  EXPECT_EQ(sequence->reuse().tier, 32);
  EXPECT_EQ(sequence->reuse().matched, 64);
}

TEST(KvCacheLoadTest, TwoSequencesShareOneRead) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  const auto a = h.Take(Range(1, 70));
  const auto b = h.Take(Range(1, 50));
  EXPECT_EQ(h.tier().loads().size(), 4);
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_TRUE(a->ready());
  EXPECT_TRUE(b->ready());
  EXPECT_EQ(b->length(), 49);
  EXPECT_EQ(a->blocks(0)[1], b->blocks(0)[1]);
  EXPECT_EQ(h.Check(*a), "");
  EXPECT_EQ(h.Check(*b), "");
  EXPECT_TRUE(h.tier().problems().empty());
}

// RAM-6.
TEST(KvCacheLoadTest, WhatWasReadIsInRamForTheNextBeforeTheFirstHasEnded) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  const auto a = h.TakeReady(Range(1, 70));
  const auto b = h.Take(Range(1, 70));
  EXPECT_TRUE(b->ready());
  EXPECT_EQ(b->reuse().ram, 64);
}

TEST(KvCacheLoadTest, AFailedReadShortensTheResumePointAndNothingElse) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  const auto sequence = h.Take(Range(1, 70));
  h.tier().CompleteLoads(2);
  h.tier().FailLoads(absl::DataLossError("damaged"), 1);
  h.cache().Poll();
  // The fourth block, still on its way, is not needed any more.
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 32);
  EXPECT_EQ(sequence->reuse().cached, 32);
  EXPECT_EQ(sequence->reuse().matched, 64);
  EXPECT_EQ(h.Check(*sequence), "");
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_EQ(sequence->length(), 32);
  // It goes on as any other.
  ASSERT_TRUE(h.Compute(*sequence, Range(33, 38)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.Check(*sequence), "");
  h.StoreAll();
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(KvCacheLoadTest, WhoWaitsForADiskThatDoesNotAnswerGoesOnWithoutIt) {
  for (const CacheLayout& layout :
       {FullOnly(), FullAndWindow(), ThreeGroups(), MixedAndWindow(),
        FullAndState(), WindowAndTwoStates()}) {
    CacheHarness h(layout);
    h.Generate(Range(1, 64));
    h.StoreAll();
    h.Restart();
    const auto first = h.Take(Range(1, 70));
    h.clock().Advance(std::chrono::milliseconds(4000));
    // It does answer.
    h.tier().CompleteLoads(1);
    h.cache().Poll();
    h.clock().Advance(std::chrono::milliseconds(4999));
    h.cache().Poll();
    EXPECT_FALSE(first->ready());
    h.clock().Advance(std::chrono::milliseconds(1));
    h.cache().Poll();
    ASSERT_TRUE(first->ready());
    EXPECT_LT(first->length(), 64);
    EXPECT_EQ(first->reuse().cached, first->length());
    EXPECT_EQ(h.Check(*first), "");
    // Who comes now does not wait as long again.
    const auto second = h.Take(Range(1, 60));
    h.cache().Poll();
    EXPECT_TRUE(second->ready());
    EXPECT_GE(h.cache().stats().takes_given_up, 1);
    // They compute it, and publish what is stored already.
    const Tokens all = Range(1, 70);
    ASSERT_TRUE(
        h.Compute(*first, Tokens(all.begin() + first->length(), all.end()))
            .ok());
    h.cache().Publish(*first);
    EXPECT_EQ(h.Check(*first), "");
    // At last.
    h.tier().CompleteLoads();
    h.cache().Poll();
    EXPECT_EQ(h.TakeReady(Range(1, 80))->length(), 70);
    EXPECT_EQ(h.Check(*first), "");
    EXPECT_TRUE(h.tier().problems().empty());
  }
}

TEST(KvCacheLoadTest, ALoneLongWaitIsNoStall) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  h.clock().Advance(std::chrono::seconds(100));
  const auto sequence = h.Take(Range(1, 70));
  h.clock().Advance(std::chrono::milliseconds(4000));
  h.cache().Poll();
  EXPECT_FALSE(sequence->ready());
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_EQ(sequence->length(), 64);
  EXPECT_EQ(h.cache().stats().takes_given_up, 0);
}

TEST(KvCacheLoadTest, AFailedWindowReadGoesBackToAnEarlierPublishedPosition) {
  CacheHarness h(FullAndWindow());
  auto sequence = h.Generate(Range(1, 200));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(h.Compute(*sequence, Range(201 + 10 * i, 10)).ok());
  }
  h.cache().Publish(*sequence);
  h.StoreAll();
  sequence.reset();
  h.Restart();
  sequence = h.Take(Range(1, 610));
  EXPECT_EQ(sequence->length(), 600);
  for (const LoadRequest& load : h.tier().loads()) {
    if (load.identity.key.group == 1 && load.identity.start == 592) {
      h.tier().Drop(load.identity.key);
      break;
    }
  }
  h.tier().CompleteLoads();
  h.cache().Poll();
  // 592 sees back to 493: stored, but not needed for 600.
  EXPECT_FALSE(sequence->ready());
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 592);
  EXPECT_EQ(h.Check(*sequence), "");
  // Nothing of the window before 592: only the first turn's end is left.
  sequence.reset();
  h.Restart();
  sequence = h.Take(Range(1, 610));
  std::vector<BlockKey> keys;
  for (const LoadRequest& load : h.tier().loads()) {
    if (load.identity.key.group == 1) {
      keys.push_back(load.identity.key);
    }
  }
  for (const BlockKey& key : keys) {
    h.tier().Drop(key);
  }
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_FALSE(sequence->ready());
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 200);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(KvCacheLoadTest, ASiblingServesWhereTheSpanItselfIsGone) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 40));
  h.Generate(Range(1, 27) + Range(500, 10));
  h.StoreAll();
  h.Restart();
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (entry.identity.tokens == Range(17, 16)) {
      h.tier().Drop(key);
    }
  }
  h.cache().Poll();
  const auto sequence = h.TakeReady(Range(1, 50));
  EXPECT_EQ(sequence->length(), 27);
  EXPECT_EQ(sequence->reuse().matched, 40);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(KvCacheLoadTest, ASequenceMayEndWhileItWaits) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  auto sequence = h.Take(Range(1, 70));
  sequence.reset();
  h.tier().CompleteLoads(2);
  h.tier().FailLoads(absl::UnavailableError("no"), 2);
  h.cache().Poll();
  EXPECT_EQ(h.Take(Range(1, 70))->reuse().ram, 32);
  EXPECT_EQ(h.cache().stats().nodes, 2);
}

TEST(KvCacheLoadTest, ACacheMayEndWhileSequencesWait) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.Restart();
  const auto sequence = h.Take(Range(1, 70));
  h.Stop();
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 0);
}

TEST(KvCacheLoadTest, TheTierIsToldWhatWasUsedLeafFirst) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 48));
  h.StoreAll();
  h.Take(Range(1, 50));
  std::vector<TokenPos> starts;
  for (const BlockKey& key : h.tier().touched()) {
    starts.push_back(h.tier().disk().at(key).identity.start);
  }
  EXPECT_EQ(starts, (std::vector<TokenPos>{32, 16, 0}));
}

TEST(KvCacheBudgetTest, OverTheTargetDurableBlocksLeaveLeavesFirst) {
  CacheHarness h(FullOnly(), Room(3));
  h.Generate(Range(1, 96));
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 3 * kSlot);
  EXPECT_EQ(h.cache().stats().demoted_blocks, 3);
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
  const auto sequence = h.Take(Range(1, 49));
  EXPECT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 48);
}

TEST(KvCacheBudgetTest, TheLeastRecentlyUsedConversationGoesFirst) {
  CacheHarness h(FullOnly(), Room(4));
  h.Generate(Range(1, 32));
  h.Generate(Range(1001, 32));
  h.Take(Range(1, 40));
  h.Generate(Range(2001, 32));
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  EXPECT_TRUE(h.Take(Range(1, 40))->ready());
  EXPECT_TRUE(h.Take(Range(2001, 40))->ready());
  EXPECT_FALSE(h.Take(Range(1001, 40))->ready());
}

TEST(KvCacheBudgetTest, WhatSomebodyUsesStays) {
  CacheHarness h(FullOnly(), Room(0));
  auto sequence = h.Generate(Range(1, 64));
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  EXPECT_EQ(h.Check(*sequence), "");
  sequence.reset();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 0);
}

// RAM-10, RAM-11.
TEST(KvCacheBudgetTest, WhatIsNotDurableStaysOverTheTargetUntilItIs) {
  CacheHarness h(FullOnly(), {0, 100 * kSlot});
  h.Generate(Range(1, 64));
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  h.tier().FailStores(absl::ResourceExhaustedError("full"));
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  h.clock().Advance(std::chrono::seconds(5));
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 0);
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
}

TEST(KvCacheBudgetTest, OverTheHardCapTheColdestAreLostAndCounted) {
  CacheHarness h(FullOnly(), {2 * kSlot, 4 * kSlot});
  h.tier().set_max_pending_stores(0);
  h.Generate(Range(1, 64));
  h.Generate(Range(1001, 32));
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  EXPECT_EQ(h.cache().stats().lost_blocks, 2);
  // Leaves first: the beginning of the older conversation is left.
  EXPECT_EQ(h.Take(Range(1, 64))->length(), 32);
  EXPECT_EQ(h.Take(Range(1001, 40))->length(), 32);
}

TEST(KvCacheBudgetTest, LiveSequencesAreNeverCutForTheHardCap) {
  CacheHarness h(FullOnly(), {0, kSlot});
  h.tier().set_max_pending_stores(0);
  const auto sequence = h.Generate(Range(1, 160));
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 10 * kSlot);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(KvCacheBudgetTest, WhatTheTiersCapEvictedMayLeaveRamToo) {
  CacheHarness h(FullOnly(), {kSlot, 100 * kSlot});
  h.Generate(Range(1, 16));
  h.StoreAll();
  h.tier().Drop(h.tier().disk().begin()->first);
  h.cache().Poll();
  h.Generate(Range(1001, 16));
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), kSlot);
  EXPECT_EQ(h.cache().stats().nodes, 1);
}

TEST(KvCacheBudgetTest, RoomIsMadeBeforeItIsUsed) {
  CacheHarness h(FullOnly(), Room(4));
  h.Generate(Range(1, 64));
  h.StoreAll();
  const auto sequence = h.Take(Range(1001, 64));
  ASSERT_TRUE(h.cache().Reserve(*sequence, 48).ok());
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
}

TEST(KvCacheBudgetTest, ABlockOfTwoNodesLeavesWhenNobodyElseUsesIt) {
  CacheHarness h(FullOnly(), Room(0));
  h.Generate(Range(1, 10) + Range(500, 6));
  h.StoreAll();
  h.cache().Poll();
  ASSERT_EQ(h.pool().used_bytes(), 0);
  // A shorter copy of that node becomes the beginning of another one.
  auto sequence = h.Take(Range(1, 1));
  ASSERT_TRUE(h.Compute(*sequence, Range(1, 10)).ok());
  h.cache().Publish(*sequence);
  ASSERT_TRUE(h.Compute(*sequence, Range(600, 6)).ok());
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
  EXPECT_EQ(h.pool().used_bytes(), kSlot);
  sequence.reset();
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.pool().used_bytes(), 0);
}

TEST(KvCacheBudgetTest, NodesWithNothingLeftAreRemoved) {
  CacheHarness h(FullOnly(), Room(0));
  h.Generate(Range(1, 64));
  h.StoreAll();
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().nodes, 4);
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    h.tier().Drop(key);
  }
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().nodes, 0);
}

TEST(KvCacheBudgetTest, DemoteAllLeavesOnlyWhatIsUsedOrNotDurable) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  const auto sequence = h.Take(Range(1, 17));
  h.Generate(Range(1001, 16));
  h.cache().DemoteAll();
  EXPECT_EQ(h.cache().stats().cached_blocks_in_ram, 2);
  EXPECT_EQ(h.cache().stats().demoted_blocks, 3);
}

TEST(KvCacheBudgetTest, ARestoreKeepsToTheTarget) {
  CacheHarness h(FullOnly(), Room(8));
  h.Generate(Range(1, 128));
  h.StoreAll();
  h.Generate(Range(1001, 128));
  h.StoreAll();
  h.cache().Poll();
  const auto sequence = h.Take(Range(1, 140));
  EXPECT_FALSE(sequence->ready());
  EXPECT_EQ(h.pool().used_bytes(), 8 * kSlot);
}

}  // namespace
}  // namespace everwarm::cache
