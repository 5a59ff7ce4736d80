#include "cache/preload.h"

#include <gtest/gtest.h>

#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

constexpr uint64_t kSlot = 4096;
constexpr uint64_t kPlenty = uint64_t{1} << 30;

// Conversations as a scan after a restart finds them.
std::vector<Conversation> Latest(CacheHarness& h) {
  return LatestConversations(h.tier().Scan(), 64);
}

// A process that computed that, and another one that has only its disk.
void ComputeAndRestart(CacheHarness& h, const Tokens& tokens) {
  h.Generate(tokens);
  h.StoreAll();
  h.Restart();
}

// Reads all that it wants to.
void Finish(CacheHarness& h, Preload& preload) {
  while (preload.Advance()) {
    h.tier().CompleteLoads();
    h.cache().Poll();
  }
}

TEST(PreloadTest, AConversationIsInRamBeforeSomebodyAsks) {
  for (const CacheLayout& layout : {FullOnly(), FullAndWindow()}) {
    CacheHarness h(layout);
    ComputeAndRestart(h, Range(1, 70));
    Preload preload(&h.cache(), Latest(h), {kPlenty});
    Finish(h, preload);
    EXPECT_EQ(preload.finished(), 1);
    EXPECT_TRUE(h.tier().loads().empty());
    const auto sequence = h.Take(Range(1, 90));
    ASSERT_TRUE(sequence->ready());
    EXPECT_EQ(sequence->reuse().ram, 70);
    EXPECT_EQ(h.Check(*sequence), "");
  }
}

TEST(PreloadTest, TheLatestConversationComesFirstAndLeavesLast) {
  CacheHarness h(FullOnly());
  for (int first : {1, 1001, 2001}) {
    h.Generate(Range(first, 32));
    h.StoreAll();
  }
  h.Restart();
  // Room for two of the three.
  Preload preload(&h.cache(), Latest(h), {4 * kSlot});
  ASSERT_TRUE(preload.Advance());
  ASSERT_EQ(h.tier().loads().size(), 2);
  EXPECT_EQ(h.tier().loads().front().identity.tokens, Range(2001, 16));
  Finish(h, preload);
  EXPECT_EQ(preload.finished(), 2);
  EXPECT_EQ(h.pool().used_bytes(), 4 * kSlot);
  EXPECT_EQ(h.Take(Range(2001, 40))->reuse().ram, 32);
  EXPECT_EQ(h.Take(Range(1001, 40))->reuse().ram, 32);
  EXPECT_EQ(h.cache().stats().preloaded_tokens, 64);
}

TEST(PreloadTest, UnderPressureTheOlderOfTwoLeavesFirst) {
  CacheHarness h(FullOnly(), {4 * kSlot, 8 * kSlot});
  for (int first : {1, 1001}) {
    h.Generate(Range(first, 32));
    h.StoreAll();
  }
  h.Restart();
  Preload preload(&h.cache(), Latest(h), {4 * kSlot});
  Finish(h, preload);
  ASSERT_EQ(preload.finished(), 2);
  h.Generate(Range(5001, 32));
  h.StoreAll();
  EXPECT_EQ(h.TakeReady(Range(1001, 40))->reuse().ram, 32);
}

TEST(PreloadTest, IsNoUse) {
  CacheHarness h(FullOnly());
  ComputeAndRestart(h, Range(1, 70));
  const size_t touched = h.tier().touched().size();
  Preload preload(&h.cache(), Latest(h), {kPlenty});
  Finish(h, preload);
  EXPECT_EQ(h.tier().touched().size(), touched);
  const CacheStats stats = h.cache().stats();
  EXPECT_EQ(stats.takes, 0);
  EXPECT_EQ(stats.hits, 0);
  EXPECT_EQ(stats.tokens_asked, 0);
  EXPECT_EQ(stats.tokens_from_tier, 0);
  EXPECT_EQ(stats.preloaded_tokens, 70);
}

TEST(PreloadTest, SomebodyWhoAsksMeanwhileGoesOnFromTheSameReads) {
  CacheHarness h(FullAndWindow());
  ComputeAndRestart(h, Range(1, 70));
  Preload preload(&h.cache(), Latest(h), {kPlenty});
  ASSERT_TRUE(preload.Advance());
  const size_t reads = h.tier().loads().size();
  const auto sequence = h.Take(Range(1, 90));
  preload.Interrupt();
  EXPECT_EQ(h.tier().loads().size(), reads);
  h.tier().CompleteLoads();
  h.cache().Poll();
  ASSERT_TRUE(sequence->ready());
  EXPECT_EQ(sequence->length(), 70);
  EXPECT_EQ(h.Check(*sequence), "");
  // What is there already takes no more reads.
  EXPECT_FALSE(preload.Advance());
  EXPECT_EQ(preload.finished(), 1);
}

TEST(PreloadTest, ALongConversationIsReadInPieces) {
  CacheHarness h(FullOnly());
  ComputeAndRestart(h, Range(1, 2000));
  Preload preload(&h.cache(), Latest(h), {kPlenty, 32 * kSlot});
  for (const size_t reads : {32, 32, 32}) {
    ASSERT_TRUE(preload.Advance());
    EXPECT_EQ(h.tier().loads().size(), reads);
    // Nothing more before these have come.
    ASSERT_TRUE(preload.Advance());
    EXPECT_EQ(h.tier().loads().size(), reads);
    h.tier().CompleteLoads();
    h.cache().Poll();
  }
  // Somebody asks for something else, and it goes on afterwards.
  preload.Interrupt();
  EXPECT_EQ(h.TakeReady(Range(5001, 40))->length(), 0);
  ASSERT_TRUE(preload.Advance());
  EXPECT_EQ(h.tier().loads().size(), 29);
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_FALSE(preload.Advance());
  EXPECT_EQ(h.Take(Range(1, 2010))->reuse().ram, 2000);
}

TEST(PreloadTest, AReadThatFailsLeavesWhatIsBeforeIt) {
  CacheHarness h(FullOnly());
  ComputeAndRestart(h, Range(1, 64));
  Preload preload(&h.cache(), Latest(h), {kPlenty});
  ASSERT_TRUE(preload.Advance());
  h.tier().CompleteLoads(2);
  h.tier().FailLoads(absl::DataLossError("torn"), 1);
  h.tier().CompleteLoads();
  h.cache().Poll();
  EXPECT_FALSE(preload.Advance());
  EXPECT_EQ(h.TakeReady(Range(1, 80))->length(), 32);
}

TEST(PreloadTest, NothingFoundIsNothingToDo) {
  CacheHarness h(FullOnly());
  Preload preload(&h.cache(), {}, {kPlenty});
  EXPECT_FALSE(preload.Advance());
  EXPECT_EQ(preload.finished(), 0);
}

}  // namespace
}  // namespace everwarm::cache
