// Taking over what a start-up scan found.
#include <algorithm>
#include <random>

#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

// B-23: what a restart finds is usable, for every kind of group, at the end and
// at the prompt boundary.
TEST(AdoptionTest, ARestartReusesEverythingThatWasDurable) {
  for (const CacheLayout& layout :
       {FullOnly(), FullAndWindow(), ThreeGroups(), MixedAndWindow()}) {
    CacheHarness h(layout);
    auto sequence = h.Generate(Range(1, 150));
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(h.Compute(*sequence, Range(151 + 5 * i, 5)).ok());
    }
    h.cache().Publish(*sequence);
    sequence.reset();
    h.StoreAll();
    h.Restart();
    EXPECT_EQ(h.cache().FlushNow(0).longest_durable_prefix, 300);
    sequence = h.TakeReady(Range(1, 320));
    EXPECT_EQ(sequence->length(), 300);
    EXPECT_EQ(sequence->reuse().tier, 300);
    EXPECT_EQ(h.Check(*sequence), "");
    sequence = h.TakeReady(Range(1, 150) + Range(900, 10));
    EXPECT_EQ(sequence->length(), 150);
    EXPECT_EQ(h.Check(*sequence), "");
  }
}

TEST(AdoptionTest, EntriesMayComeInAnyOrderAndInParts) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 320));
  h.StoreAll();
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<TierEntry> entries = h.tier().Scan();
    std::shuffle(entries.begin(), entries.end(), random);
    h.Stop();
    h.tier().Restart();
    h.Start();
    const size_t cut = random() % entries.size();
    h.cache().Adopt({entries.begin() + cut, entries.end()});
    h.cache().Adopt({entries.begin(), entries.begin() + cut});
    EXPECT_EQ(h.TakeReady(Range(1, 330))->length(), 320);
  }
}

TEST(AdoptionTest, AnOrphanIsFoundOnceItsParentIsDurableAgain) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (entry.identity.start == 16) {
      h.tier().Drop(key);
    }
  }
  h.Restart();
  EXPECT_EQ(h.TakeReady(Range(1, 70))->length(), 16);
  h.Generate(Range(1, 33));
  h.StoreAll();
  const auto sequence = h.TakeReady(Range(1, 70));
  EXPECT_EQ(sequence->length(), 64);
  EXPECT_EQ(h.Check(*sequence), "");
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(AdoptionTest, OrphansThatArePublishedAgainAreNotStoredAgain) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 64));
  h.StoreAll();
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (entry.identity.start == 0) {
      h.tier().Drop(key);
    }
  }
  h.Restart();
  EXPECT_EQ(h.cache().stats().nodes, 0);
  // Up to the third block; the fourth is found behind it.
  h.Generate(Range(1, 48));
  EXPECT_EQ(h.tier().stores().size(), 1);
  EXPECT_EQ(h.cache().stats().dirty_blocks, 1);
  h.StoreAll();
  EXPECT_TRUE(h.tier().problems().empty());
  EXPECT_EQ(h.TakeReady(Range(1, 70))->length(), 64);
}

TEST(AdoptionTest, AnOrphanThatTheTierDroppedIsForgotten) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (entry.identity.start == 0) {
      h.tier().Drop(key);
    }
  }
  h.Restart();
  disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    h.tier().Drop(key);
  }
  h.cache().Poll();
  h.Generate(Range(1, 32));
  EXPECT_EQ(h.tier().stores().size(), 2);
}

TEST(AdoptionTest, ATailAndALongerOneBecomeOne) {
  // A crash came between the longer one's write and the shorter one's removal.
  CacheHarness h(FullOnly());
  auto sequence = h.Generate(Range(1, 20));
  h.StoreAll();
  const std::vector<TierEntry> before = h.tier().Scan();
  ASSERT_TRUE(h.Compute(*sequence, Range(21, 6)).ok());
  h.cache().Publish(*sequence);
  sequence.reset();
  h.tier().CompleteStores();
  ASSERT_EQ(h.tier().disk().size(), 3);
  h.Restart();
  EXPECT_EQ(h.tier().disk().size(), 2);
  EXPECT_EQ(h.cache().stats().nodes, 2);
  EXPECT_EQ(h.TakeReady(Range(1, 30))->length(), 26);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(AdoptionTest, EntriesThatMakeNoSenseAreIgnored) {
  CacheHarness h(FullOnly());
  h.Generate(Range(1, 32));
  h.StoreAll();
  std::vector<TierEntry> entries = h.tier().Scan();
  const auto second =
      std::find_if(entries.begin(), entries.end(),
                   [](const TierEntry& e) { return e.identity.start == 16; });
  const TierEntry good = *second;
  const auto spoil = [&](auto change) {
    TierEntry entry = good;
    change(entry.identity);
    entries.push_back(entry);
  };
  entries.erase(second);
  spoil([](BlockIdentity& i) { i.tokens.clear(); });
  spoil([](BlockIdentity& i) { i.tokens.push_back(1); });
  spoil([](BlockIdentity& i) { i.tokens[3] = -1; });
  spoil([](BlockIdentity& i) { i.tokens[3] = 77; });
  spoil([](BlockIdentity& i) { i.key.group = 1; });
  spoil([](BlockIdentity& i) { i.start = 17; });
  spoil([](BlockIdentity& i) { i.start = 32; });
  spoil([](BlockIdentity& i) { i.start = 0; });
  spoil([](BlockIdentity& i) { i.root = NodeId{}; });
  spoil([](BlockIdentity& i) { i.parent = NodeId{}; });
  h.Stop();
  h.Start();
  h.cache().Adopt(entries);
  EXPECT_EQ(h.cache().stats().nodes, 1);
  EXPECT_EQ(h.TakeReady(Range(1, 40))->length(), 16);
  h.cache().Adopt({good});
  EXPECT_EQ(h.TakeReady(Range(1, 40))->length(), 32);
}

}  // namespace
}  // namespace everwarm::cache
