#include "testing/sim_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include "testing/fake_clock.h"

namespace everwarm::store {
namespace {

using Op = SimDisk::Op;
using Unsynced = SimDisk::Unsynced;

SimDisk::Bytes Filled(size_t size, int value) {
  return SimDisk::Bytes(size, static_cast<std::byte>(value));
}

class SimDiskTest : public ::testing::Test {
 protected:
  SimDiskTest() {
    EXPECT_TRUE(disk_.MakeDir("/d").ok());
    EXPECT_TRUE(disk_.SyncDir("/").ok());
  }
  std::unique_ptr<File> Create(const std::string& path) {
    return *disk_.Create(path, {});
  }
  static absl::Status Write(File& file, uint64_t offset,
                            const SimDisk::Bytes& bytes) {
    const std::array<ConstBytes, 1> parts = {ConstBytes(bytes)};
    return file.WriteAt(offset, parts);
  }
  // A file that survives everything.
  void PutSynced(const std::string& path, const SimDisk::Bytes& bytes) {
    const auto file = Create(path);
    ASSERT_TRUE(Write(*file, 0, bytes).ok());
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(disk_.SyncDir("/d").ok());
  }

  FakeClock clock_;
  SimDisk disk_{&clock_};
};

TEST_F(SimDiskTest, WhatIsSyncedSurvivesEveryLossOfPower) {
  PutSynced("/d/a", Filled(5000, 7));
  for (const Unsynced unsynced : {Unsynced::kKept, Unsynced::kDropped,
                                  Unsynced::kTorn, Unsynced::kReordered}) {
    disk_.Restart(unsynced, 3);
    EXPECT_EQ(disk_.Contents("/d/a"), Filled(5000, 7));
  }
}

TEST_F(SimDiskTest, BytesThatWereNotSyncedAreLostAndTheSyncedOnesAreNot) {
  PutSynced("/d/a", Filled(5000, 7));
  const auto file = Create("/d/b");
  ASSERT_TRUE(Write(*file, 0, Filled(100, 1)).ok());
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(Write(*file, 50, Filled(100, 2)).ok());
  ASSERT_TRUE(disk_.SyncDir("/d").ok());
  disk_.Restart(Unsynced::kDropped);
  EXPECT_EQ(disk_.Contents("/d/b"), Filled(100, 1));
}

TEST_F(SimDiskTest, ANewNameIsLostWithoutASyncOfItsDirectory) {
  const auto file = Create("/d/a");
  ASSERT_TRUE(Write(*file, 0, Filled(100, 1)).ok());
  ASSERT_TRUE(file->Sync().ok());
  disk_.Restart(Unsynced::kDropped);
  EXPECT_FALSE(disk_.Exists("/d/a"));
}

TEST_F(SimDiskTest, ANewDirectoryIsLostWithAllThatIsInIt) {
  ASSERT_TRUE(disk_.MakeDir("/new/below").ok());
  const auto file = Create("/new/below/a");
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(disk_.SyncDir("/new/below").ok());
  ASSERT_TRUE(disk_.SyncDir("/new").ok());
  disk_.Restart(Unsynced::kDropped);
  EXPECT_EQ(disk_.Paths(), std::vector<std::string>{"/d"});
}

TEST_F(SimDiskTest, ARenameAndARemovalAreUndoneUnlessSynced) {
  PutSynced("/d/a", Filled(10, 1));
  PutSynced("/d/b", Filled(10, 2));
  ASSERT_TRUE(disk_.Rename("/d/a", "/d/c").ok());
  ASSERT_TRUE(disk_.Unlink("/d/b").ok());
  disk_.Restart(Unsynced::kDropped);
  EXPECT_EQ(disk_.Contents("/d/a"), Filled(10, 1));
  EXPECT_EQ(disk_.Contents("/d/b"), Filled(10, 2));
  EXPECT_FALSE(disk_.Exists("/d/c"));
  ASSERT_TRUE(disk_.Rename("/d/a", "/d/c").ok());
  ASSERT_TRUE(disk_.Unlink("/d/b").ok());
  ASSERT_TRUE(disk_.SyncDir("/d").ok());
  disk_.Restart(Unsynced::kDropped);
  EXPECT_EQ(disk_.Paths(), (std::vector<std::string>{"/d", "/d/c"}));
}

TEST_F(SimDiskTest, ADeadProcessLosesNothingButMakesNothingDurableEither) {
  const auto file = Create("/d/a");
  ASSERT_TRUE(Write(*file, 0, Filled(100, 1)).ok());
  disk_.Restart(Unsynced::kKept);
  EXPECT_EQ(disk_.Contents("/d/a"), Filled(100, 1));
  disk_.Restart(Unsynced::kDropped);
  EXPECT_FALSE(disk_.Exists("/d/a"));
}

TEST_F(SimDiskTest, ATornWriteKeepsSomePiecesWhole) {
  std::set<size_t> units;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    PutSynced("/d/a", Filled(16384, 1));
    const auto file = Create("/d/b");
    ASSERT_TRUE(Write(*file, 0, Filled(16384, 2)).ok());
    disk_.Restart(Unsynced::kTorn, seed);
    const SimDisk::Bytes found = disk_.Contents("/d/b");
    size_t smallest = 16384;
    for (size_t at = 0; at < found.size();) {
      const auto next =
          std::find_if(found.begin() + static_cast<ptrdiff_t>(at), found.end(),
                       [&](std::byte byte) { return byte != found[at]; });
      const size_t end = static_cast<size_t>(next - found.begin());
      smallest = std::min(smallest, end - at);
      EXPECT_EQ(at % 512, 0u);
      EXPECT_TRUE(found[at] == std::byte{2} || found[at] == std::byte{0});
      at = end;
    }
    units.insert(smallest);
    EXPECT_EQ(disk_.Contents("/d/a"), Filled(16384, 1));
    ASSERT_TRUE(disk_.Unlink("/d/a").ok());
    ASSERT_TRUE(disk_.Unlink("/d/b").ok());
  }
  EXPECT_TRUE(units.contains(512));
  EXPECT_TRUE(units.contains(4096));
}

TEST_F(SimDiskTest, AnyOrderIsPossibleAndFollowsFromTheSeed) {
  std::set<std::vector<std::string>> outcomes;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    std::vector<std::string> twice[2];
    for (auto& outcome : twice) {
      SimDisk disk(&clock_);
      ASSERT_TRUE(disk.MakeDir("/d").ok());
      ASSERT_TRUE(disk.SyncDir("/").ok());
      ASSERT_TRUE(disk.Create("/d/a", {}).ok());
      ASSERT_TRUE(disk.Rename("/d/a", "/d/b").ok());
      ASSERT_TRUE(disk.Create("/d/a", {}).ok());
      disk.Restart(Unsynced::kReordered, seed);
      outcome = disk.Paths();
    }
    EXPECT_EQ(twice[0], twice[1]);
    outcomes.insert(twice[0]);
  }
  // Neither name, either one, or both.
  EXPECT_EQ(outcomes.size(), 4u);
}

TEST_F(SimDiskTest, ASyncThatFailsGivesUpItsBytesForGood) {
  const auto file = Create("/d/a");
  ASSERT_TRUE(disk_.SyncDir("/d").ok());
  ASSERT_TRUE(Write(*file, 0, Filled(100, 1)).ok());
  disk_.FailCall(Op::kSync, 1, absl::UnavailableError("EIO"));
  EXPECT_FALSE(file->Sync().ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(disk_.Contents("/d/a"), Filled(100, 1));
  disk_.Restart(Unsynced::kDropped);
  EXPECT_TRUE(disk_.Contents("/d/a").empty());
}

TEST_F(SimDiskTest, ACrashIsTheEndOfEveryCallUntilTheRestart) {
  const auto file = Create("/d/a");
  disk_.CrashAtCall(2);
  EXPECT_TRUE(Write(*file, 0, Filled(10, 1)).ok());
  EXPECT_FALSE(disk_.crashed());
  EXPECT_FALSE(Write(*file, 10, Filled(10, 2)).ok());
  EXPECT_TRUE(disk_.crashed());
  EXPECT_FALSE(disk_.Stat("/d").ok());
  EXPECT_EQ(disk_.Contents("/d/a"), Filled(10, 1));
  disk_.Restart(Unsynced::kKept);
  EXPECT_TRUE(disk_.Stat("/d").ok());
  // A file of the dead process.
  EXPECT_FALSE(file->Sync().ok());
}

TEST_F(SimDiskTest, CallsFailByNumberAndByChance) {
  const auto file = Create("/d/a");
  disk_.FailCall(Op::kWrite, 2, absl::UnavailableError("EIO"), 2);
  EXPECT_TRUE(Write(*file, 0, Filled(10, 1)).ok());
  EXPECT_FALSE(Write(*file, 0, Filled(10, 1)).ok());
  EXPECT_FALSE(Write(*file, 0, Filled(10, 1)).ok());
  EXPECT_TRUE(Write(*file, 0, Filled(10, 1)).ok());
  disk_.SetChances({.write_error = 500});
  int failed = 0;
  for (int i = 0; i < 1000; ++i) {
    failed += Write(*file, 0, Filled(10, 1)).ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 400);
  EXPECT_LT(failed, 600);
  disk_.ClearFaults();
  EXPECT_TRUE(Write(*file, 0, Filled(10, 1)).ok());
}

TEST_F(SimDiskTest, ReadsMayBeShortOrFlipped) {
  PutSynced("/d/a", Filled(1000, 1));
  const auto file = *disk_.OpenForRead("/d/a", {});
  SimDisk::Bytes into(1000);
  const std::array<MutableBytes, 1> parts = {MutableBytes(into)};
  disk_.ShortenRead(1);
  EXPECT_EQ(*file->ReadAt(0, parts), 500u);
  EXPECT_EQ(*file->ReadAt(0, parts), 1000u);
  EXPECT_EQ(into, Filled(1000, 1));
  disk_.SetChances({.flipped_read = 1000});
  EXPECT_EQ(*file->ReadAt(0, parts), 1000u);
  EXPECT_NE(into, Filled(1000, 1));
  EXPECT_EQ(disk_.Contents("/d/a"), Filled(1000, 1));
  disk_.ClearFaults();
  disk_.FlipBit("/d/a", 17, 3);
  EXPECT_EQ(*file->ReadAt(0, parts), 1000u);
  EXPECT_EQ(into[17], std::byte{9});
}

TEST_F(SimDiskTest, AFullDiskTakesHalfOfAWriteAndCountsEveryFile) {
  disk_.set_capacity(disk_.used_bytes() + 8192);
  const auto file = Create("/d/a");
  const absl::Status status = Write(*file, 0, Filled(16384, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(disk_.Contents("/d/a").size(), 8192u);
  EXPECT_EQ(disk_.Space("/d")->free_bytes, 0u);
  EXPECT_EQ(disk_.used_bytes(), 4096u + 8192u);
  ASSERT_TRUE(disk_.Unlink("/d/a").ok());
  EXPECT_EQ(disk_.used_bytes(), 4096u);
  EXPECT_EQ(disk_.peak_bytes(), 4096u + 8192u);
  EXPECT_EQ(disk_.Space("/d")->free_bytes, 8192u);
}

TEST_F(SimDiskTest, ALockDiesWithItsProcess) {
  auto lock = disk_.Lock("/d/lock");
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(disk_.Lock("/d/lock").status()));
  disk_.Restart(Unsynced::kKept);
  const auto next = disk_.Lock("/d/lock");
  EXPECT_TRUE(next.ok());
  // The dead one's lock is not the next one's.
  lock->reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(disk_.Lock("/d/lock").status()));
}

TEST_F(SimDiskTest, AStalledCallWaitsAndOthersGoOn) {
  disk_.Stall(Op::kStat);
  std::thread waiting([&] { EXPECT_TRUE(disk_.Stat("/d").ok()); });
  disk_.WaitForStalled(Op::kStat);
  EXPECT_TRUE(disk_.List("/d").ok());
  disk_.Release(Op::kStat);
  waiting.join();
}

TEST_F(SimDiskTest, ADirectoryTakesItsFilesAlongWhenItIsRenamed) {
  ASSERT_TRUE(disk_.MakeDir("/d/from").ok());
  const auto file = Create("/d/from/a");
  const uint64_t used = disk_.used_bytes();
  ASSERT_TRUE(disk_.Rename("/d/from", "/d/to").ok());
  EXPECT_EQ(disk_.Paths(),
            (std::vector<std::string>{"/d", "/d/to", "/d/to/a"}));
  EXPECT_EQ(disk_.used_bytes(), used);
}

}  // namespace
}  // namespace everwarm::store
