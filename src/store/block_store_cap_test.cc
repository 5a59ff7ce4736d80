// The cap, the order in which blocks go, and what counts.
#include <gtest/gtest.h>

#include <thread>

#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;
using Op = SimDisk::Op;

// A block of group 0 on the simulated disk.
constexpr uint64_t kFileBytes = 4096 + 12288;
// /cache, our directory, and what a write reserves beyond its file.
constexpr uint64_t kFixedBytes = 2 * 4096;
constexpr uint64_t kSlackBytes = 8192;

uint64_t CapFor(int blocks) {
  return kFixedBytes + blocks * kFileBytes + kSlackBytes;
}

std::vector<BlockIdentity> ChainOf(uint32_t seed, TokenPos tokens,
                                   uint8_t fingerprint = 1) {
  return Chain(seed, tokens, TestFingerprint(fingerprint));
}

class BlockStoreCapTest : public ::testing::Test {
 protected:
  // Stores one block and lets a second pass.
  void StoreOne(const BlockIdentity& identity) {
    h_.StoreAll({identity});
    h_.clock.Advance(std::chrono::seconds(1));
  }
  bool OnDisk(const BlockIdentity& identity) const {
    return h_.env.Exists(h_.PathOf(identity));
  }
  StoreHarness h_;
};

TEST_F(BlockStoreCapTest, TheCapIsNeverPassedWhileWriting) {
  h_.options.max_bytes = CapFor(5);
  h_.options.max_batch_blocks = 3;
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    h_.StoreAll(ChainOf(seed, 32));
    h_.clock.Advance(std::chrono::seconds(1));
    EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  }
  EXPECT_LE(h_.env.peak_bytes(), h_.options.max_bytes);
  // Each of the two in a batch reserves a little more than its file.
  EXPECT_GE(h_.store->stats().entries, 4u);
  EXPECT_EQ(h_.store->stats().evicted + h_.store->stats().entries, 40u);
}

TEST_F(BlockStoreCapTest, TheLeastRecentlyUsedLeafGoesFirstAndIsReported) {
  h_.options.max_bytes = CapFor(4);
  ASSERT_TRUE(h_.Open().ok());
  const auto first = ChainOf(1, 32);
  const auto second = ChainOf(2, 32);
  for (const auto& identity : {first[0], first[1], second[0], second[1]}) {
    StoreOne(identity);
  }
  h_.store->TakeEvents();
  // The older conversation is used again, so the other one's leaf goes.
  h_.store->Touch({{first[1].key, first[0].key}});
  StoreOne(ChainOf(3, 16)[0]);
  const auto dropped =
      StoreHarness::Only<cache::DroppedEvent>(h_.store->TakeEvents());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].key, second[1].key);
  EXPECT_FALSE(OnDisk(second[1]));
  EXPECT_TRUE(OnDisk(second[0]));
}

TEST_F(BlockStoreCapTest, AnAncestorStaysAsLongAsALeafIsThere) {
  h_.options.max_bytes = CapFor(3);
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 48);
  for (const BlockIdentity& identity : chain) {
    StoreOne(identity);
  }
  StoreOne(ChainOf(2, 16)[0]);
  EXPECT_TRUE(OnDisk(chain[0]));
  EXPECT_TRUE(OnDisk(chain[1]));
  EXPECT_FALSE(OnDisk(chain[2]));
}

TEST_F(BlockStoreCapTest, AConversationDoesNotEvictItsOwnBeginning) {
  h_.options.max_bytes = CapFor(3);
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 16 * 5);
  for (const BlockIdentity& identity : chain) {
    StoreOne(identity);
  }
  EXPECT_TRUE(OnDisk(chain[0]));
  EXPECT_TRUE(OnDisk(chain[1]));
  EXPECT_TRUE(OnDisk(chain[2]));
  const auto failed =
      StoreHarness::Only<cache::StoreFailedEvent>(h_.store->TakeEvents());
  ASSERT_FALSE(failed.empty());
  EXPECT_TRUE(absl::IsResourceExhausted(failed[0].status));
}

TEST_F(BlockStoreCapTest, ABlockThatCannotEverFitEvictsNothing) {
  h_.options.max_bytes = CapFor(1);
  ASSERT_TRUE(h_.Open().ok());
  StoreOne(ChainOf(1, 16)[0]);
  h_.options.max_bytes = kFileBytes;
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.entries.empty());
  StoreOne(ChainOf(2, 16)[0]);
  EXPECT_EQ(h_.store->stats().failed_stores, 1u);
}

TEST_F(BlockStoreCapTest, ASmallerCapIsKeptAtTheNextOpen) {
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    StoreOne(ChainOf(seed, 16)[0]);
  }
  h_.options.max_bytes = kFixedBytes + 2 * kFileBytes;
  ASSERT_TRUE(h_.Open().ok());
  ASSERT_EQ(h_.entries.size(), 2u);
  EXPECT_LE(h_.env.used_bytes(), h_.options.max_bytes);
  EXPECT_TRUE(OnDisk(ChainOf(5, 16)[0]));
  EXPECT_TRUE(OnDisk(ChainOf(6, 16)[0]));
  EXPECT_TRUE(h_.store->TakeEvents().empty());
}

TEST_F(BlockStoreCapTest, AnotherModelsFilesCountAndGoByAgeLeavesFirst) {
  ASSERT_TRUE(h_.Open().ok());
  const auto foreign = ChainOf(1, 48, 1);
  for (const BlockIdentity& identity : foreign) {
    StoreOne(identity);
  }
  std::vector<std::string> foreign_paths;
  for (const BlockIdentity& identity : foreign) {
    foreign_paths.push_back(h_.PathOf(identity));
  }
  h_.options.fingerprint = TestFingerprint(2);
  h_.options.max_bytes = CapFor(5) + 4096;  // one more directory
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.entries.empty());
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  h_.env.ResetPeak();
  // Two fit beside them; then the foreign leaf goes, not its parent, although
  // that is older.
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    StoreOne(ChainOf(seed, 16, 2)[0]);
  }
  EXPECT_TRUE(h_.env.Exists(foreign_paths[0]));
  EXPECT_TRUE(h_.env.Exists(foreign_paths[1]));
  EXPECT_FALSE(h_.env.Exists(foreign_paths[2]));
  for (uint32_t seed = 4; seed <= 8; ++seed) {
    StoreOne(ChainOf(seed, 16, 2)[0]);
  }
  EXPECT_FALSE(h_.env.Exists(foreign_paths[0]));
  EXPECT_LE(h_.env.peak_bytes(), h_.options.max_bytes);
  EXPECT_EQ(h_.store->stats().entries, 5u);
  // Nothing that is ours was touched before the older ones were gone.
  EXPECT_EQ(
      StoreHarness::Only<cache::DroppedEvent>(h_.store->TakeEvents()).size(),
      3u);
}

TEST_F(BlockStoreCapTest, AnotherModelsFilesAreLeftAloneWhileThereIsRoom) {
  ASSERT_TRUE(h_.Open().ok());
  const auto foreign = ChainOf(1, 40, 1);
  h_.StoreAll(foreign);
  h_.options.fingerprint = TestFingerprint(2);
  ASSERT_TRUE(h_.Open().ok());
  h_.StoreAll(ChainOf(1, 40, 2));
  h_.options.fingerprint = TestFingerprint(1);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.entries.size(), 3u);
  for (const BlockIdentity& identity : foreign) {
    EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
  }
}

TEST_F(BlockStoreCapTest, TimesFromTheFutureOrBefore1970DoNotProtect) {
  ASSERT_TRUE(h_.Open().ok());
  const auto future = ChainOf(1, 16)[0];
  const auto past = ChainOf(2, 16)[0];
  const auto normal = ChainOf(3, 16)[0];
  for (const auto& identity : {future, past, normal}) {
    StoreOne(identity);
  }
  h_.env.SetTime(h_.PathOf(future),
                 h_.clock.WallNow() + std::chrono::hours(1000));
  h_.env.SetTime(h_.PathOf(past), Clock::Wall(-std::chrono::hours(1000)));
  h_.options.max_bytes = CapFor(3);
  ASSERT_TRUE(h_.Open().ok());
  h_.clock.Advance(std::chrono::seconds(1));
  h_.store->Touch({{normal.key}});
  StoreOne(ChainOf(4, 16)[0]);
  EXPECT_FALSE(OnDisk(past));
  EXPECT_TRUE(OnDisk(future));
  StoreOne(ChainOf(5, 16)[0]);
  EXPECT_FALSE(OnDisk(future));
  EXPECT_TRUE(OnDisk(normal));
}

TEST_F(BlockStoreCapTest, WhatWasJustWrittenOrUsedStaysWhenTheClockIsSetBack) {
  h_.options.max_bytes = CapFor(3);
  ASSERT_TRUE(h_.Open().ok());
  const auto first = ChainOf(1, 16)[0];
  const auto second = ChainOf(2, 16)[0];
  const auto third = ChainOf(3, 16)[0];
  StoreOne(first);
  StoreOne(second);
  h_.clock.SetWall(h_.clock.WallNow() - std::chrono::hours(10));
  StoreOne(third);
  h_.store->Touch({{first.key}});
  StoreOne(ChainOf(4, 16)[0]);
  EXPECT_TRUE(OnDisk(first));
  EXPECT_FALSE(OnDisk(second));
  EXPECT_TRUE(OnDisk(third));
  StoreOne(ChainOf(5, 16)[0]);
  EXPECT_TRUE(OnDisk(first));
  EXPECT_FALSE(OnDisk(third));
  EXPECT_TRUE(OnDisk(ChainOf(4, 16)[0]));
}

TEST_F(BlockStoreCapTest, FilesSetAsideCountAndGoBeforeGoodOnes) {
  ASSERT_TRUE(h_.Open().ok());
  const auto good = ChainOf(1, 16)[0];
  const auto bad = ChainOf(2, 16)[0];
  StoreOne(good);
  StoreOne(bad);
  h_.env.Put(h_.PathOf(bad), SimDisk::Bytes(kFileBytes));
  // One more directory: damaged/.
  h_.options.max_bytes = CapFor(2) + 4096;
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.store->stats().damaged, 1u);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.store->stats().damaged, 0u);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  StoreOne(ChainOf(3, 16)[0]);
  EXPECT_TRUE(OnDisk(good));
  EXPECT_EQ(h_.store->stats().entries, 2u);
}

TEST_F(BlockStoreCapTest, TheCapHoldsForTheDirectoryOfFilesSetAsideToo) {
  for (const bool running : {true, false}) {
    StoreHarness h;
    ASSERT_TRUE(h.Open().ok());
    const auto chain = ChainOf(1, 48);
    h.StoreAll(chain);
    h.options.max_bytes = h.env.used_bytes();
    ASSERT_TRUE(h.Open().ok());
    h.env.ResetPeak();
    h.env.FlipBit(h.PathOf(chain[2]), running ? 5000 : 50, 1);
    if (running) {
      EXPECT_TRUE(absl::IsDataLoss(h.LoadAndCheck(chain[2])));
      h.writers.RunAll();
    } else {
      ASSERT_TRUE(h.Open().ok());
    }
    // There is no room to keep what is damaged, and no good block goes for it.
    EXPECT_LE(h.env.peak_bytes(), h.options.max_bytes);
    EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
    EXPECT_FALSE(h.env.Exists(h.PathOf(chain[2])));
    EXPECT_TRUE(h.LoadAndCheck(chain[0]).ok());
    EXPECT_TRUE(h.LoadAndCheck(chain[1]).ok());
  }
}

TEST_F(BlockStoreCapTest, DirectoriesThatGrowAreCounted) {
  // More files than there are names in one page of a directory.
  constexpr uint32_t kFiles = 120;
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= kFiles; ++seed) {
    h_.StoreAll({ChainOf(seed, 16)[0]});
    ASSERT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  }
  for (uint32_t seed = 1; seed <= kFiles; ++seed) {
    h_.env.FlipBit(h_.PathOf(ChainOf(seed, 16)[0]), seed % 2 == 0 ? 50 : 5000,
                   1);
  }
  // Half are found at the start, the rest when they are read.
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.entries.size(), kFiles / 2);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  for (const cache::TierEntry& entry : h_.entries) {
    EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(entry.identity)));
    h_.writers.RunAll();
    ASSERT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  }
  EXPECT_EQ(h_.env.List("/cache/damaged")->size(), kFiles);
  h_.store->Keep(RecordOf("session", ChainOf(1, 16)), {});
  h_.writers.RunAll();
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
}

TEST_F(BlockStoreCapTest, AFullDiskEvictsAndTriesOnceMore) {
  ASSERT_TRUE(h_.Open().ok());
  const auto old = ChainOf(1, 32);
  h_.StoreAll(old);
  h_.store->TakeEvents();
  h_.clock.Advance(std::chrono::seconds(1));
  h_.env.FailCall(Op::kWrite, 1, absl::ResourceExhaustedError("ENOSPC"));
  StoreOne(ChainOf(2, 16)[0]);
  const auto events = h_.store->TakeEvents();
  EXPECT_EQ(StoreHarness::Only<cache::StoredEvent>(events).size(), 1u);
  EXPECT_FALSE(StoreHarness::Only<cache::DroppedEvent>(events).empty());
  EXPECT_FALSE(h_.HasTempFiles());
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
}

TEST_F(BlockStoreCapTest, ADiskThatSomebodyElseFilledStoresNothingAndRecovers) {
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 16);
  h_.env.Put("/filler", SimDisk::Bytes(100000));
  h_.env.set_capacity(h_.env.used_bytes() + 5000);
  h_.StoreAll(chain);
  const auto failed =
      StoreHarness::Only<cache::StoreFailedEvent>(h_.store->TakeEvents());
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(failed[0].status));
  EXPECT_FALSE(h_.HasTempFiles());
  ASSERT_TRUE(h_.env.Unlink("/filler").ok());
  h_.StoreAll(chain);
  EXPECT_TRUE(h_.LoadAndCheck(chain[0]).ok());
}

TEST_F(BlockStoreCapTest, OnceThereIsRoomAgainAllIsStoredInAnyOrder) {
  h_.options.max_batch_blocks = 1;
  ASSERT_TRUE(h_.Open().ok());
  auto chain = ChainOf(1, 64);
  h_.env.Put("/filler", SimDisk::Bytes(100000));
  h_.env.set_capacity(h_.env.used_bytes() + 5000);
  h_.StoreAll(chain);
  ASSERT_EQ(h_.store->stats().failed_stores, 4u);
  ASSERT_TRUE(h_.env.Unlink("/filler").ok());
  std::reverse(chain.begin(), chain.end());
  h_.StoreAll(chain);
  EXPECT_EQ(h_.store->stats().failed_stores, 4u);
  EXPECT_EQ(h_.store->stats().entries, 4u);
}

TEST_F(BlockStoreCapTest, TheFileSystemKeepsItsFreeBytes) {
  h_.env.set_capacity(1000000);
  h_.options.min_free_bytes = 90000;
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    StoreOne(ChainOf(seed, 16)[0]);
  }
  EXPECT_LE(h_.env.peak_bytes(), 910000u);
  EXPECT_GT(h_.env.peak_bytes(), 800000u);
}

TEST_F(BlockStoreCapTest, NoBlockIsGivenUpForRoomThatCannotBeMade) {
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 32);
  h_.StoreAll(chain);
  h_.env.Put("/filler", SimDisk::Bytes(1000000));
  h_.env.set_capacity(h_.env.used_bytes() + 5000);
  h_.options.min_free_bytes = 100000;
  ASSERT_TRUE(h_.Open().ok());
  h_.StoreAll(ChainOf(2, 16));
  EXPECT_EQ(h_.store->stats().evicted, 0u);
  EXPECT_EQ(h_.store->stats().failed_stores, 1u);
  EXPECT_TRUE(OnDisk(chain[1]));
}

TEST_F(BlockStoreCapTest, AFileThatCannotBeRemovedStaysAndTheNextOneGoes) {
  h_.options.max_bytes = CapFor(3);
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    StoreOne(ChainOf(seed, 16)[0]);
  }
  h_.store->TakeEvents();
  h_.env.FailCall(Op::kUnlink, 1, absl::PermissionDeniedError("EPERM"));
  StoreOne(ChainOf(4, 16)[0]);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  EXPECT_LE(h_.env.peak_bytes(), h_.options.max_bytes);
  EXPECT_TRUE(OnDisk(ChainOf(4, 16)[0]));
  const auto dropped =
      StoreHarness::Only<cache::DroppedEvent>(h_.store->TakeEvents());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].key, ChainOf(2, 16)[0].key);
  EXPECT_EQ(dropped[0].reason, cache::DropReason::kEvicted);
  EXPECT_TRUE(h_.LoadAndCheck(ChainOf(1, 16)[0]).ok());
  // It goes as soon as it can.
  StoreOne(ChainOf(5, 16)[0]);
  EXPECT_FALSE(OnDisk(ChainOf(1, 16)[0]));
}

TEST_F(BlockStoreCapTest, AFullCacheThatIsReadOnlyForAWhileForgetsNothing) {
  h_.options.max_bytes = CapFor(6);
  ASSERT_TRUE(h_.Open().ok());
  std::vector<BlockIdentity> old;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    old.push_back(ChainOf(seed, 16)[0]);
    StoreOne(old.back());
  }
  h_.store->TakeEvents();
  h_.env.FailCall(Op::kUnlink, 1, absl::PermissionDeniedError("EROFS"), 1000);
  const int unlinks = h_.env.count(Op::kUnlink);
  for (int attempt = 0; attempt < 5; ++attempt) {
    StoreOne(ChainOf(10, 16)[0]);
  }
  // Not one call for each file that there is.
  EXPECT_LE(h_.env.count(Op::kUnlink) - unlinks, 5 * 3);
  const auto events = h_.store->TakeEvents();
  EXPECT_TRUE(StoreHarness::Only<cache::DroppedEvent>(events).empty());
  const auto failed = StoreHarness::Only<cache::StoreFailedEvent>(events);
  ASSERT_EQ(failed.size(), 5u);
  EXPECT_NE(failed[0].status.message().find("EROFS"), std::string::npos);
  EXPECT_EQ(h_.store->stats().evicted, 0u);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  for (const BlockIdentity& identity : old) {
    EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
  }
  h_.env.ClearFaults();
  // In the order of their use, as if nothing had been.
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    StoreOne(ChainOf(10 + seed, 16)[0]);
    EXPECT_TRUE(OnDisk(ChainOf(10 + seed, 16)[0]));
    EXPECT_FALSE(OnDisk(old[seed - 1]));
  }
  EXPECT_EQ(h_.store->stats().evicted, 6u);
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  EXPECT_LE(h_.env.peak_bytes(), h_.options.max_bytes);
}

TEST_F(BlockStoreCapTest, AnotherModelsReadOnlyFilesDoNotKeepOursFromGoing) {
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    StoreOne(ChainOf(seed, 16, 1)[0]);
  }
  h_.options.fingerprint = TestFingerprint(2);
  h_.options.max_bytes = CapFor(7) + 4096;  // one more directory
  ASSERT_TRUE(h_.Open().ok());
  StoreOne(ChainOf(1, 16, 2)[0]);
  StoreOne(ChainOf(2, 16, 2)[0]);
  h_.env.FailCall(Op::kUnlink, 1, absl::PermissionDeniedError("EACCES"), 3);
  StoreOne(ChainOf(3, 16, 2)[0]);
  EXPECT_TRUE(OnDisk(ChainOf(3, 16, 2)[0]));
  EXPECT_FALSE(OnDisk(ChainOf(1, 16, 2)[0]));
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
}

TEST_F(BlockStoreCapTest, ABlockWhoseFileIsBeingRemovedIsReadButNotPromised) {
  h_.options.max_bytes = CapFor(2);
  ASSERT_TRUE(h_.Open().ok());
  const auto old = ChainOf(1, 16)[0];
  StoreOne(old);
  StoreOne(ChainOf(2, 16)[0]);
  h_.store->TakeEvents();
  for (const bool fails : {true, false}) {
    if (fails) {
      h_.env.FailCall(Op::kUnlink, 1, absl::UnavailableError("EIO"), 3);
    }
    h_.env.Stall(Op::kUnlink);
    ASSERT_TRUE(h_.Store(ChainOf(3, 16)[0]).ok());
    std::thread writer([&] { h_.writers.RunOne(); });
    h_.env.WaitForStalled(Op::kUnlink);
    EXPECT_TRUE(h_.LoadAndCheck(old).ok());
    // Whether this is durable is not known yet.
    ASSERT_TRUE(h_.store->Store({old, h_.MakeBlock(old)}).ok());
    EXPECT_TRUE(h_.store->TakeEvents().empty());
    h_.env.Release(Op::kUnlink);
    writer.join();
    h_.env.ClearFaults();
    h_.writers.RunAll();
    const auto events = h_.store->TakeEvents();
    const auto dropped = StoreHarness::Only<cache::DroppedEvent>(events);
    const auto stored = StoreHarness::Only<cache::StoredEvent>(events);
    if (fails) {
      EXPECT_TRUE(dropped.empty());
      ASSERT_EQ(stored.size(), 1u);
      EXPECT_EQ(stored[0].key, old.key);
    } else {
      ASSERT_FALSE(dropped.empty());
      EXPECT_EQ(dropped[0].key, old.key);
    }
    EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  }
  // It was written again, after all.
  EXPECT_TRUE(h_.LoadAndCheck(old).ok());
}

TEST_F(BlockStoreCapTest, AReplacedFileThatCannotBeRemovedGoesLater) {
  h_.options.max_bytes = CapFor(2);
  ASSERT_TRUE(h_.Open().ok());
  const auto replaced = ChainOf(1, 16)[0];
  StoreOne(replaced);
  h_.env.FailCall(Op::kUnlink, 1, absl::UnavailableError("EIO"));
  h_.store->Remove(replaced.key);
  h_.writers.RunAll();
  EXPECT_TRUE(OnDisk(replaced));
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  StoreOne(ChainOf(2, 16)[0]);
  StoreOne(ChainOf(3, 16)[0]);
  EXPECT_FALSE(OnDisk(replaced));
  EXPECT_TRUE(OnDisk(ChainOf(2, 16)[0]));
  EXPECT_TRUE(OnDisk(ChainOf(3, 16)[0]));
  EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
}

TEST_F(BlockStoreCapTest, WhatCannotBeListedIsNotCountedAsNothing) {
  ASSERT_TRUE(h_.Open().ok());
  StoreOne(ChainOf(1, 16, 1)[0]);
  StoreOne(ChainOf(2, 16, 1)[0]);
  h_.env.FlipBit(h_.PathOf(ChainOf(2, 16, 1)[0]), 50, 1);
  ASSERT_TRUE(h_.Open().ok());
  const std::string foreign = "/cache/" + h_.options.fingerprint.hex();
  h_.options.fingerprint = TestFingerprint(2);
  const std::string own = "/cache/" + h_.options.fingerprint.hex();
  ASSERT_TRUE(h_.Open().ok());
  // In the order in which they are listed.
  const std::vector<std::string> dirs = {"/cache", foreign, "/cache/damaged",
                                         own};
  for (size_t i = 0; i < dirs.size(); ++i) {
    h_.store.reset();
    h_.env.FailCall(Op::kList, static_cast<int>(i) + 1,
                    absl::PermissionDeniedError("EACCES"));
    const absl::Status status = h_.Open();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_NE(status.message().find("EACCES"), std::string::npos);
    if (i > 0) {
      EXPECT_NE(status.message().find(dirs[i]), std::string::npos) << status;
    }
    h_.env.ClearFaults();
    ASSERT_TRUE(h_.Open().ok());
  }
  // What somebody removes meanwhile takes nothing.
  for (const int gone : {2, 3}) {
    h_.env.FailCall(Op::kList, gone, absl::NotFoundError("ENOENT"));
    EXPECT_TRUE(h_.Open().ok());
  }
}

}  // namespace
}  // namespace everwarm::store
