#include "store/scrubber.h"

#include <gtest/gtest.h>

#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using std::chrono::seconds;

class ScrubberTest : public testing::Test {
 protected:
  // Enough for one block of the first group a second, and a bit.
  ScrubberTest() {
    h_.options.scrub_bytes_per_second =
        kHeaderBytes + AlignUp(SmallGroups()[0].rest.geometry.PayloadBytes(16),
                               kSlotAlignment);
    EXPECT_TRUE(h_.Open().ok());
    chain_ = Chain(1, 96, TestFingerprint());
    h_.StoreAll(chain_);
    h_.store->TakeEvents();
  }

  void Second() {
    h_.clock.Advance(seconds(1));
    h_.store->Tick();
    h_.scrubbers.RunAll();
  }
  void Flip(const cache::BlockIdentity& identity, size_t at) {
    auto bytes = h_.env.Contents(h_.PathOf(identity));
    bytes[at] ^= std::byte{1};
    h_.env.Put(h_.PathOf(identity), bytes);
  }

  StoreHarness h_;
  std::vector<cache::BlockIdentity> chain_;
};

TEST_F(ScrubberTest, ReadsAtTheRateThatItWasGivenAndAllOfIt) {
  for (uint64_t second = 1; second <= 20; ++second) {
    Second();
    EXPECT_EQ(h_.store->stats().scrubbed, second);
  }
  EXPECT_EQ(h_.store->stats().damaged, 0u);
  EXPECT_TRUE(h_.store->TakeEvents().empty());
}

TEST_F(ScrubberTest, ALongPauseIsNotMadeUpFor) {
  h_.clock.Advance(seconds(100000));
  h_.store->Tick();
  h_.scrubbers.RunAll();
  EXPECT_EQ(h_.store->stats().scrubbed, 1u);
}

TEST_F(ScrubberTest, OffByDefault) {
  h_.options.scrub_bytes_per_second = StoreOptions().scrub_bytes_per_second;
  ASSERT_TRUE(h_.Open().ok());
  for (int i = 0; i < 10; ++i) {
    Second();
  }
  EXPECT_EQ(h_.store->stats().scrubbed, 0u);
}

TEST_F(ScrubberTest, DamageIsSetAsideCountedAndToldOnce) {
  Flip(chain_[2], kHeaderBytes + 5);
  Flip(chain_[4], 60);
  for (int i = 0; i < 12; ++i) {
    Second();
  }
  h_.writers.RunAll();
  const auto dropped =
      StoreHarness::Only<cache::DroppedEvent>(h_.store->TakeEvents());
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0].reason, cache::DropReason::kLost);
  EXPECT_EQ(dropped[1].reason, cache::DropReason::kLost);
  EXPECT_EQ(h_.store->stats().damaged, 2u);
  EXPECT_EQ(h_.store->stats().entries, 4u);
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(chain_[2])));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(chain_[4])));
  // The others were not touched, and the damaged can be stored again.
  EXPECT_TRUE(h_.LoadAndCheck(chain_[0]).ok());
  h_.StoreAll({chain_[2]});
  EXPECT_TRUE(h_.LoadAndCheck(chain_[2]).ok());
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
}

TEST_F(ScrubberTest, WhatTheStoreItselfRemovesMeanwhileIsNoLoss) {
  Second();
  for (const auto& identity : chain_) {
    h_.store->Remove(identity.key);
  }
  h_.writers.RunAll();
  for (int i = 0; i < 12; ++i) {
    Second();
  }
  EXPECT_EQ(h_.store->stats().damaged, 0u);
  EXPECT_EQ(h_.store->stats().scrub_failed, 0u);
  EXPECT_TRUE(h_.store->TakeEvents().empty());
}

TEST_F(ScrubberTest, AFileThatSomebodyRemovedIsALossAndToldOnce) {
  Second();
  ASSERT_TRUE(h_.env.Unlink(h_.PathOf(chain_[1])).ok());
  ASSERT_TRUE(h_.env.Unlink(h_.PathOf(chain_[5])).ok());
  // The pass that runs has listed them.
  for (int i = 0; i < 12; ++i) {
    Second();
  }
  const auto dropped =
      StoreHarness::Only<cache::DroppedEvent>(h_.store->TakeEvents());
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0].reason, cache::DropReason::kLost);
  EXPECT_EQ(h_.store->stats().damaged, 0u);
  EXPECT_EQ(h_.store->stats().entries, 4u);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  h_.StoreAll(chain_);
  EXPECT_TRUE(h_.LoadAndCheck(chain_[1]).ok());
  EXPECT_TRUE(h_.LoadAndCheck(chain_[5]).ok());
}

TEST_F(ScrubberTest, WhatCannotBeReadJustNowStaysAndIsReadInTheNextPass) {
  h_.env.FailCall(SimDisk::Op::kOpen, 1, absl::UnavailableError("EMFILE"));
  h_.env.FailCall(SimDisk::Op::kRead, 2, absl::UnavailableError("EIO"));
  for (int i = 0; i < 20; ++i) {
    Second();
  }
  EXPECT_EQ(h_.store->stats().scrub_failed, 2u);
  EXPECT_EQ(h_.store->stats().damaged, 0u);
  EXPECT_EQ(h_.store->stats().entries, 6u);
  EXPECT_TRUE(h_.store->TakeEvents().empty());
  for (const auto& identity : chain_) {
    EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
  }
}

TEST_F(ScrubberTest, FilesThatAreNobodysEntriesAreLookedAtOnceATick) {
  // They lie there, and the index has none of them.
  for (const auto& identity : chain_) {
    h_.store->Remove(identity.key);
  }
  h_.env.FailCall(SimDisk::Op::kUnlink, 1, absl::PermissionDeniedError("EPERM"),
                  6);
  h_.writers.RunAll();
  const int lists = h_.env.count(SimDisk::Op::kList);
  for (int tick = 1; tick <= 3; ++tick) {
    h_.clock.Advance(seconds(1));
    h_.store->Tick();
    for (int i = 0; i < 100; ++i) {
      h_.scrubbers.RunOne();
    }
    EXPECT_EQ(h_.scrubbers.size(), 0u);
    EXPECT_EQ(h_.env.count(SimDisk::Op::kList), lists + tick);
  }
}

TEST_F(ScrubberTest, ATaskThatIsLeftOverDoesNothing) {
  h_.clock.Advance(seconds(1));
  h_.store->Tick();
  h_.store.reset();
  h_.scrubbers.RunAll();
}

}  // namespace
}  // namespace everwarm::store
