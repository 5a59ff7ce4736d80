// A cache directory that somebody removes under a running store, shares with a
// second one, or has put something else into.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "store/posix_env.h"
#include "testing/store_harness.h"
#include "testing/temp_dir.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;

class OwnDirectoryTest : public ::testing::Test {
 protected:
  OwnDirectoryTest() : chain_(Chain(1, 48, TestFingerprint())) {
    h_.options.dir = dir_.File("cache");
  }

  // A process on the real directory.
  absl::StatusOr<std::unique_ptr<BlockStore>> Open(ManualExecutor& executor) {
    absl::StatusOr<OpenedStore> opened = BlockStore::Open(
        h_.options, {&env_, &h_.clock, &executor, &executor, NullLogger()});
    if (!opened.ok()) {
      return opened.status();
    }
    found_ = opened->entries.size();
    return std::move(opened->store);
  }
  // What came of it.
  std::vector<cache::TierEvent> Store(
      BlockStore& store, ManualExecutor& executor,
      const std::vector<BlockIdentity>& blocks) {
    for (const BlockIdentity& identity : blocks) {
      EXPECT_TRUE(store.Store({identity, h_.MakeBlock(identity)}).ok());
    }
    executor.RunAll();
    return store.TakeEvents();
  }
  template <typename Event>
  static size_t Count(const std::vector<cache::TierEvent>& events) {
    return StoreHarness::Only<Event>(events).size();
  }
  bool Exists(const BlockIdentity& identity) const {
    return std::filesystem::exists(h_.PathOf(identity));
  }
  std::string OwnDir() const {
    return h_.options.dir + "/" + h_.options.fingerprint.hex();
  }
  std::set<std::string> FilesInOwnDir() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(OwnDir())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  TempDir dir_;
  PosixEnv env_;
  StoreHarness h_;  // for its pool, its blocks and its options
  const std::vector<BlockIdentity> chain_;
  ManualExecutor one_;
  ManualExecutor two_;
  size_t found_ = 0;
};

TEST_F(OwnDirectoryTest, ARemovedDirectoryIsMadeAndLockedAnewAndItsLossTold) {
  auto store = Open(one_);
  ASSERT_TRUE(store.ok());
  Store(**store, one_, {chain_[0], chain_[1]});
  std::filesystem::remove_all(h_.options.dir);
  const auto events = Store(**store, one_, {chain_[2]});
  const auto dropped = StoreHarness::Only<cache::DroppedEvent>(events);
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0].reason, cache::DropReason::kLost);
  EXPECT_EQ(Count<cache::StoredEvent>(events), 1u);
  EXPECT_TRUE(Exists(chain_[2]));
  // Nobody else gets in.
  EXPECT_TRUE(absl::IsFailedPrecondition(Open(two_).status()));
  // What was lost is stored again.
  EXPECT_EQ(
      Count<cache::StoredEvent>(Store(**store, one_, {chain_[0], chain_[1]})),
      2u);
  store->reset();
  ASSERT_TRUE(Open(two_).ok());
  EXPECT_EQ(found_, 3u);
}

TEST_F(OwnDirectoryTest, ARemovedModelsDirectoryIsMadeAnewAndItsLossTold) {
  auto store = Open(one_);
  ASSERT_TRUE(store.ok());
  Store(**store, one_, {chain_[0], chain_[1]});
  std::filesystem::remove_all(OwnDir());
  const auto events = Store(**store, one_, {chain_[2]});
  EXPECT_EQ(Count<cache::DroppedEvent>(events), 2u);
  EXPECT_EQ(Count<cache::StoredEvent>(events), 1u);
  EXPECT_TRUE(Exists(chain_[2]));
}

TEST_F(OwnDirectoryTest, WhoeverLosesTheDirectoryToAnotherWritesNothingThere) {
  h_.options.max_bytes = 120 * 1024;
  auto first = Open(one_);
  ASSERT_TRUE(first.ok());
  Store(**first, one_, {chain_[0]});
  std::filesystem::remove_all(h_.options.dir);
  auto second = Open(two_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Count<cache::StoredEvent>(Store(**second, two_, chain_)), 3u);
  const std::set<std::string> files = FilesInOwnDir();

  // The first has a block to remove, a time to set, a record and new blocks to
  // write, and the second's files would have to make room for these.
  (*first)->Touch({{chain_[0].key}});
  (*first)->Remove(chain_[0].key);
  (*first)->Keep(RecordOf("session", chain_), {});
  std::vector<BlockIdentity> more;
  for (uint32_t seed = 2; seed <= 8; ++seed) {
    more.push_back(Chain(seed, 16, TestFingerprint())[0]);
  }
  const auto events = Store(**first, one_, more);
  EXPECT_EQ(Count<cache::StoreFailedEvent>(events), more.size());
  EXPECT_EQ(events.size(), more.size());
  const auto failed = StoreHarness::Only<cache::StoreFailedEvent>(events);
  EXPECT_NE(failed[0].status.message().find(h_.options.dir), std::string::npos);
  EXPECT_NE(failed[0].status.message().find("lock file"), std::string::npos);
  EXPECT_EQ(FilesInOwnDir(), files);
  first->reset();
  EXPECT_EQ(FilesInOwnDir(), files);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open(one_).status()));
  // After the second the directory is free, and all of it is the second's.
  second->reset();
  ASSERT_TRUE(Open(one_).ok());
  EXPECT_EQ(found_, 3u);
}

TEST(TemporaryNamesTest, NoTwoStoresUseTheSameOnes) {
  StoreHarness h;
  const auto chain = Chain(1, 32, TestFingerprint());
  std::set<std::string> names;
  for (int store = 0; store < 3; ++store) {
    ASSERT_TRUE(h.Open().ok());
    for (const BlockIdentity& identity : chain) {
      // It stays under the name that it was written to.
      h.env.FailCall(SimDisk::Op::kSync, 1, absl::UnavailableError("EIO"));
      h.env.FailCall(SimDisk::Op::kUnlink, 1, absl::UnavailableError("EIO"));
      h.StoreAll({identity});
    }
    for (const std::string& path : h.env.Paths()) {
      if (path.find("/tmp-") != std::string::npos) {
        names.insert(path);
      }
    }
  }
  EXPECT_EQ(names.size(), 3 * chain.size());
}

TEST_F(OwnDirectoryTest, WhatStandsWhereTheLockShouldBeIsNamed) {
  std::filesystem::create_directories(h_.options.dir + "/lock");
  absl::Status status = Open(one_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("directory"), std::string::npos) << status;
  EXPECT_EQ(status.message().find("in use"), std::string::npos) << status;
  std::filesystem::remove(h_.options.dir + "/lock");
  std::filesystem::create_symlink("nowhere", h_.options.dir + "/lock");
  status = Open(one_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("symbolic link"), std::string::npos)
      << status;
  EXPECT_EQ(status.message().find("in use"), std::string::npos) << status;
  std::filesystem::remove(h_.options.dir + "/lock");
  EXPECT_TRUE(Open(one_).ok());
}

TEST_F(OwnDirectoryTest, AModelsDirectoryThatIsALinkIsRefusedByName) {
  std::filesystem::create_directories(h_.options.dir);
  std::filesystem::create_directories(dir_.File("elsewhere"));
  for (const std::string& target : {dir_.File("elsewhere"), dir_.File("no")}) {
    std::filesystem::create_symlink(target, OwnDir());
    const absl::Status status = Open(one_).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(OwnDir()), std::string::npos) << status;
    EXPECT_NE(status.message().find("link"), std::string::npos) << status;
    std::filesystem::remove(OwnDir());
  }
  EXPECT_TRUE(Open(one_).ok());
}

TEST_F(OwnDirectoryTest, ALinkForWhatIsSetAsideIsRefusedByName) {
  const std::string damaged = h_.options.dir + "/damaged";
  std::filesystem::create_directories(h_.options.dir);
  std::filesystem::create_directories(dir_.File("elsewhere"));
  std::filesystem::create_symlink(dir_.File("elsewhere"), damaged);
  absl::Status status = Open(one_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find(damaged), std::string::npos) << status;
  std::filesystem::remove(damaged);
  auto store = Open(one_);
  ASSERT_TRUE(store.ok());
  // One that comes later gets nothing either.
  Store(**store, one_, {chain_[0]});
  std::filesystem::create_symlink(dir_.File("elsewhere"), damaged);
  std::filesystem::resize_file(h_.PathOf(chain_[0]), 100);
  (*store)->Load({chain_[0], *h_.pool.Allocate(0, 0)});
  one_.RunAll();
  EXPECT_FALSE(Exists(chain_[0]));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.File("elsewhere")));
}

TEST_F(OwnDirectoryTest, TheCacheDirectoryItselfMayBeALink) {
  std::filesystem::create_directories(dir_.File("elsewhere"));
  std::filesystem::create_symlink(dir_.File("elsewhere"), h_.options.dir);
  auto store = Open(one_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(Count<cache::StoredEvent>(Store(**store, one_, chain_)), 3u);
}

}  // namespace
}  // namespace everwarm::store
