// States through the store: the same path as blocks, at positions of their own.
#include <gtest/gtest.h>

#include <vector>

#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;

class BlockStoreStatesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(h_.Open().ok()); }
  // Several in one span and one at its end, like the block of that name.
  std::vector<BlockIdentity> States() const {
    const auto chain = Chain(1, 40, TestFingerprint(1));
    return {StateIn(chain[0], 3), StateIn(chain[0], 11), StateIn(chain[1], 16),
            StateIn(chain[2], 8)};
  }
  StoreHarness h_;
};

TEST_F(BlockStoreStatesTest, StatesComeBackAsTheyWereAfterPowerLoss) {
  const auto chain = Chain(1, 40, TestFingerprint(1));
  h_.StoreAll(chain);
  h_.StoreAll(States());
  EXPECT_EQ(
      StoreHarness::Only<cache::StoredEvent>(h_.store->TakeEvents()).size(),
      chain.size() + States().size());
  h_.store.reset();
  h_.env.Restart(SimDisk::Unsynced::kDropped);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.entries.size(), chain.size() + States().size());
  for (const BlockIdentity& state : States()) {
    EXPECT_TRUE(h_.LoadAndCheck(state).ok());
  }
  for (const BlockIdentity& block : chain) {
    EXPECT_TRUE(h_.LoadAndCheck(block).ok());
  }
}

TEST_F(BlockStoreStatesTest, ADamagedStateIsAMissAndSetAside) {
  h_.StoreAll(States());
  const BlockIdentity state = States()[1];
  auto bytes = h_.env.Contents(h_.PathOf(state));
  bytes[kHeaderBytes + 7000] ^= std::byte{1};
  h_.env.Put(h_.PathOf(state), bytes);
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(state)));
  h_.writers.RunAll();
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(state)));
  EXPECT_EQ(h_.store->stats().damaged, 1u);
  EXPECT_TRUE(h_.LoadAndCheck(States()[0]).ok());
}

TEST_F(BlockStoreStatesTest, AStateOfOtherTokensIsNotServed) {
  const BlockIdentity state = States()[1];
  BlockIdentity other = state;
  other.tokens[4] += 1;
  other.key.node = ChildId(other.parent, other.tokens);
  h_.StoreAll({state});
  h_.env.Put(h_.PathOf(other), h_.env.Contents(h_.PathOf(state)));
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(other)));
}

TEST_F(BlockStoreStatesTest, ARemovedStateIsGone) {
  h_.StoreAll(States());
  h_.store->Remove(States()[2].key);
  h_.writers.RunAll();
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(States()[2])));
  EXPECT_TRUE(absl::IsNotFound(h_.LoadAndCheck(States()[2])));
  EXPECT_EQ(h_.store->stats().entries, 3u);
}

TEST_F(BlockStoreStatesTest, AtTheCapAnOldStateGoesBeforeTheBlocksOfItsSpan) {
  const auto chain = Chain(1, 48, TestFingerprint(1));
  h_.StoreAll({StateIn(chain[0], 16)});
  h_.clock.Advance(std::chrono::seconds(1));
  h_.StoreAll(chain);
  h_.clock.Advance(std::chrono::seconds(1));
  // As full as it gets with one file less.
  h_.options.max_bytes = h_.store->stats().bytes - 1;
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.store->stats().evicted, 1u);
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(StateIn(chain[0], 16))));
  for (const BlockIdentity& block : chain) {
    EXPECT_TRUE(h_.env.Exists(h_.PathOf(block)));
  }
}

TEST_F(BlockStoreStatesTest, GroupsOfBlocksMustAgreeStatesNeedNot) {
  StoreOptions options = h_.options;
  EXPECT_TRUE(options.Validate().ok());
  options.groups.push_back(GroupScheme{"f16", BlockGeometry(1, 32, {{1, 8}})});
  EXPECT_TRUE(absl::IsInvalidArgument(options.Validate()));
}

}  // namespace
}  // namespace everwarm::store
