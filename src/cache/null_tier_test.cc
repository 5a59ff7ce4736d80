#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

class NullTierTest : public testing::Test {
 protected:
  std::unique_ptr<KvCache> MakeCache(uint64_t target) {
    KvCache::Config config;
    config.layout = FullOnly();
    config.ram_target_bytes = target;
    config.ram_hard_cap_bytes = target;
    return std::make_unique<KvCache>(config, &pool_, &tier_, &clock_,
                                     NullLogger());
  }
  void Run(KvCache& cache, const Tokens& prompt) {
    auto sequence = cache.Take(prompt, "");
    const Tokens rest(prompt.begin() + sequence->length(), prompt.end());
    ASSERT_TRUE(
        cache.Reserve(*sequence, static_cast<TokenPos>(rest.size())).ok());
    cache.Append(*sequence, rest);
    cache.Publish(*sequence);
  }

  BlockPool pool_{Geometries(FullOnly())};
  NullTier tier_;
  FakeClock clock_;
};

TEST_F(NullTierTest, StoresNothingAndHasNothing) {
  EXPECT_FALSE(tier_.stats().enabled);
  EXPECT_TRUE(absl::IsUnavailable(tier_.Store({})));
  tier_.Load({});
  const std::vector<TierEvent> events = tier_.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_TRUE(absl::IsNotFound(std::get<LoadFailedEvent>(events[0]).status));
  EXPECT_TRUE(tier_.TakeEvents().empty());
}

TEST_F(NullTierTest, TheCacheWorksInRamAlone) {
  const auto cache = MakeCache(1 << 30);
  Run(*cache, Range(1, 100));
  EXPECT_EQ(cache->Take(Range(1, 100), "")->reuse().ram, 99);
  EXPECT_EQ(cache->stats().dirty_blocks, 0);
}

TEST_F(NullTierTest, BlocksOverTheTargetAreSimplyDiscarded) {
  const auto cache = MakeCache(4 * 4096);
  Run(*cache, Range(1, 100));
  cache->Poll();
  EXPECT_EQ(pool_.used_bytes(), 4 * 4096);
  EXPECT_EQ(cache->Take(Range(1, 100), "")->length(), 64);
}

TEST_F(NullTierTest, DemotingEverythingDemotesNothing) {
  const auto cache = MakeCache(1 << 30);
  Run(*cache, Range(1, 100));
  cache->DemoteAll();
  EXPECT_EQ(cache->stats().cached_blocks_in_ram, 7);
}

TEST_F(NullTierTest, AFlushSaysThatThereIsNoTier) {
  const auto cache = MakeCache(1 << 30);
  Run(*cache, Range(1, 100));
  const auto report = cache->FlushOutcome(cache->BeginFlush());
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->no_tier);
  EXPECT_FALSE(report->durable());
  EXPECT_EQ(report->pending, 0);
}

}  // namespace
}  // namespace everwarm::cache
