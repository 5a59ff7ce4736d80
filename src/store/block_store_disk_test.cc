// The store on a real directory with real threads.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/executor.h"
#include "store/inspect.h"
#include "store/posix_env.h"
#include "testing/store_harness.h"
#include "testing/temp_dir.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;

struct Mode {
  const char* name;
  PosixEnv::Options options;
};

class BlockStoreDiskTest : public ::testing::TestWithParam<Mode> {
 protected:
  BlockStoreDiskTest() : env_(GetParam().options) {
    options_ = h_.options;
    options_.dir = dir_.File("cache");
  }
  ~BlockStoreDiskTest() override {
    store_.reset();
    writers_.reset();
    readers_.reset();
  }

  absl::Status Open() {
    store_.reset();
    writers_ = std::make_unique<ThreadExecutor>("writer", 1);
    readers_ = std::make_unique<ThreadExecutor>("reader", 2);
    auto opened = BlockStore::Open(options_, {&env_, &clock_, writers_.get(),
                                              readers_.get(), NullLogger()});
    if (!opened.ok()) {
      return opened.status();
    }
    store_ = std::move(opened->store);
    entries_ = std::move(opened->entries);
    return absl::OkStatus();
  }
  std::string PathOf(const BlockIdentity& identity) const {
    return options_.dir + "/" + options_.fingerprint.hex() + "/" +
           BlockFileName(identity.key);
  }
  // Events until `count` of them have come.
  std::vector<cache::TierEvent> Await(size_t count) {
    std::vector<cache::TierEvent> events;
    while (events.size() < count) {
      for (cache::TierEvent& event : store_->TakeEvents()) {
        events.push_back(std::move(event));
      }
      std::this_thread::yield();
    }
    return events;
  }
  void StoreAll(const std::vector<BlockIdentity>& blocks) {
    for (const BlockIdentity& identity : blocks) {
      ASSERT_TRUE(store_->Store({identity, h_.MakeBlock(identity)}).ok());
    }
    for (const auto& event : Await(blocks.size())) {
      ASSERT_TRUE(std::holds_alternative<cache::StoredEvent>(event));
    }
  }
  // How many of the blocks come back right; the rest must have failed.
  size_t LoadAll(const std::vector<BlockIdentity>& blocks) {
    for (const BlockIdentity& identity : blocks) {
      store_->Load(
          {identity, *h_.pool.Allocate(identity.key.group, identity.start)});
    }
    size_t right = 0;
    for (const auto& event : Await(blocks.size())) {
      if (const auto* loaded = std::get_if<cache::LoadedEvent>(&event)) {
        for (const BlockIdentity& identity : blocks) {
          if (identity.key == loaded->key) {
            EXPECT_TRUE(h_.IsRight(loaded->block, identity));
            ++right;
          }
        }
      }
    }
    return right;
  }

  TempDir dir_;
  SystemClock clock_;
  PosixEnv env_;
  StoreHarness h_;  // for its pool and its blocks
  StoreOptions options_;
  std::unique_ptr<Executor> writers_;
  std::unique_ptr<Executor> readers_;
  std::unique_ptr<BlockStore> store_;
  std::vector<cache::TierEntry> entries_;
};

TEST_P(BlockStoreDiskTest, BlocksSurviveARestart) {
  ASSERT_TRUE(Open().ok());
  auto blocks = Chain(1, 16 * 60 + 5, TestFingerprint());
  const auto others = Chain(2, 100, TestFingerprint(), 1);
  blocks.insert(blocks.end(), others.begin(), others.end());
  StoreAll(blocks);
  EXPECT_EQ(LoadAll(blocks), blocks.size());
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(entries_.size(), blocks.size());
  EXPECT_EQ(LoadAll(blocks), blocks.size());
}

TEST_P(BlockStoreDiskTest, ReportedBytesAreWhatIsOnTheDisk) {
  ASSERT_TRUE(Open().ok());
  StoreAll(Chain(1, 300, TestFingerprint()));
  const auto report = InspectDirectory(env_, options_.dir);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(store_->stats().bytes, report->total_bytes);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(store_->stats().bytes, report->total_bytes);
}

TEST_P(BlockStoreDiskTest, OddThingsUnderEntrysNamesNeverHang) {
  ASSERT_TRUE(Open().ok());
  const auto chain = Chain(1, 16 * 5, TestFingerprint());
  const auto plant = [&] {
    for (const BlockIdentity& identity : chain) {
      std::filesystem::remove_all(PathOf(identity));
    }
    ASSERT_EQ(mkdir(PathOf(chain[0]).c_str(), 0700), 0);
    ASSERT_EQ(mkfifo(PathOf(chain[1]).c_str(), 0600), 0);
    ASSERT_EQ(symlink("/nowhere", PathOf(chain[2]).c_str()), 0);
    ASSERT_EQ(symlink("/etc/passwd", PathOf(chain[3]).c_str()), 0);
    std::ofstream(PathOf(chain[4])) << "short";
  };
  // Planted while the server runs, then before it starts.
  StoreAll(chain);
  plant();
  EXPECT_EQ(LoadAll(chain), 0u);
  EXPECT_EQ(LoadAll(chain), 0u);
  StoreAll(chain);
  EXPECT_EQ(LoadAll(chain), chain.size());
  store_.reset();
  plant();
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(entries_.empty());
  StoreAll(chain);
  EXPECT_EQ(LoadAll(chain), chain.size());
  ASSERT_TRUE(std::filesystem::exists("/etc/passwd"));
}

TEST_P(BlockStoreDiskTest, ADirectoryThatVanishesIsMadeAgain) {
  ASSERT_TRUE(Open().ok());
  const auto chain = Chain(1, 40, TestFingerprint());
  StoreAll(chain);
  std::filesystem::remove_all(options_.dir + "/" + options_.fingerprint.hex());
  EXPECT_EQ(LoadAll(chain), 0u);
  StoreAll(chain);
  EXPECT_EQ(LoadAll(chain), chain.size());
}

TEST_P(BlockStoreDiskTest,
       ASecondProcessIsRefusedAndTheTempFilesOfALiveOneStay) {
  ASSERT_TRUE(Open().ok());
  const std::string temp =
      options_.dir + "/" + options_.fingerprint.hex() + "/tmp-99";
  std::ofstream(temp) << "being written";
  const auto second = BlockStore::Open(
      options_, {&env_, &clock_, writers_.get(), readers_.get(), NullLogger()});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_NE(second.status().message().find(options_.dir), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(temp));
  ASSERT_TRUE(Open().ok());
  EXPECT_FALSE(std::filesystem::exists(temp));
}

TEST_P(BlockStoreDiskTest, ManyThreadsStoreLoadRemoveAndTouchAtOnce) {
  options_.max_bytes = 60 * 16384;
  options_.touch_interval = std::chrono::milliseconds(0);
  ASSERT_TRUE(Open().ok());
  std::vector<BlockIdentity> blocks;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const auto chain = Chain(seed, 16 * 6 + 3, TestFingerprint());
    blocks.insert(blocks.end(), chain.begin(), chain.end());
  }
  std::mt19937 random(11);
  size_t loads = 0;
  size_t answers = 0;
  const auto take = [&] {
    for (const auto& event : store_->TakeEvents()) {
      if (const auto* loaded = std::get_if<cache::LoadedEvent>(&event)) {
        ++answers;
        for (const BlockIdentity& identity : blocks) {
          if (identity.key == loaded->key) {
            ASSERT_TRUE(h_.IsRight(loaded->block, identity));
          }
        }
      }
      answers += std::holds_alternative<cache::LoadFailedEvent>(event);
    }
  };
  for (int step = 0; step < 3000; ++step) {
    const BlockIdentity& identity = blocks[random() % blocks.size()];
    switch (random() % 6) {
      case 0:
      case 1:
        store_->Store({identity, h_.MakeBlock(identity)}).IgnoreError();
        break;
      case 2:
      case 3:
        ++loads;
        store_->Load(
            {identity, *h_.pool.Allocate(identity.key.group, identity.start)});
        break;
      case 4:
        store_->Remove(identity.key);
        break;
      default:
        store_->Touch({{identity.key}});
        EXPECT_LE(store_->stats().bytes, options_.max_bytes);
    }
    take();
  }
  while (answers < loads) {
    take();
    std::this_thread::yield();
  }
  // Turning the executors off finishes what they have.
  writers_.reset();
  readers_.reset();
  store_.reset();
  EXPECT_EQ(h_.pool.used_bytes(), 0u);
  ASSERT_TRUE(Open().ok());
  std::vector<BlockIdentity> found;
  for (const cache::TierEntry& entry : entries_) {
    found.push_back(entry.identity);
  }
  EXPECT_EQ(LoadAll(found), found.size());
}

TEST_P(BlockStoreDiskTest, AKilledProcessLeavesOnlyWholeBlocks) {
  const auto chain = Chain(1, 16 * 200, TestFingerprint());
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      // Everything is made in the child: threads do not survive a fork.
      StoreHarness h;
      PosixEnv env(GetParam().options);
      SystemClock clock;
      options_.max_batch_blocks = 4;
      auto opened = BlockStore::Open(
          options_, {&env, &clock, &h.writers, &h.readers, NullLogger()});
      for (const BlockIdentity& identity : chain) {
        opened->store->Store({identity, h.MakeBlock(identity)}).IgnoreError();
      }
      for (int batch = 0; h.writers.RunOne(); ++batch) {
        if (batch == round) {
          (void)!write(ready[1], "x", 1);
        }
      }
      _exit(0);
    }
    char byte;
    close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(Open().ok());
    std::vector<BlockIdentity> found;
    for (const cache::TierEntry& entry : entries_) {
      found.push_back(entry.identity);
    }
    EXPECT_GE(found.size(), 4u * (round + 1));
    EXPECT_EQ(store_->stats().damaged, 0u);
    EXPECT_EQ(LoadAll(found), found.size());
    store_.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, BlockStoreDiskTest,
                         ::testing::Values(Mode{"UringDirect", {true, true}},
                                           Mode{"PreadDirect", {false, true}},
                                           Mode{"PreadBuffered",
                                                {false, false}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace everwarm::store
