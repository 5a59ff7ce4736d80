// Writes that fail, stall and are cancelled. Crashes: tests/torture/crashes.h.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/executor.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;
using Op = SimDisk::Op;

std::vector<BlockIdentity> ChainOf(uint32_t seed, TokenPos tokens,
                                   GroupIndex group = 0) {
  return Chain(seed, tokens, TestFingerprint(), group);
}

class EachWriteStepTest : public ::testing::TestWithParam<Op> {};

TEST_P(EachWriteStepTest, FailingOnceIsReportedAndLeavesNothingBehind) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 40);
  h.env.FailCall(GetParam(), 1, absl::UnavailableError("EIO"));
  h.StoreAll(chain);
  const auto events = h.store->TakeEvents();
  const auto failed = StoreHarness::Only<cache::StoreFailedEvent>(events);
  const auto stored = StoreHarness::Only<cache::StoredEvent>(events);
  // A directory that cannot be synced fails the batch; all else one block.
  ASSERT_EQ(failed.size(), GetParam() == Op::kSyncDir ? 3u : 1u);
  ASSERT_EQ(stored.size(), 3 - failed.size());
  EXPECT_EQ(failed[0].status.message(), "EIO");
  EXPECT_FALSE(h.HasTempFiles());
  for (const auto& event : failed) {
    for (const BlockIdentity& identity : chain) {
      if (identity.key == event.key) {
        EXPECT_FALSE(h.env.Exists(h.PathOf(identity)));
      }
    }
  }
  EXPECT_EQ(h.store->stats().failed_stores, failed.size());
  EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
  // The cache tries again.
  h.StoreAll(chain);
  for (const BlockIdentity& identity : chain) {
    EXPECT_TRUE(h.LoadAndCheck(identity).ok());
  }
  EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
  EXPECT_EQ(h.pool.used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Steps, EachWriteStepTest,
                         ::testing::Values(Op::kCreate, Op::kWrite, Op::kSync,
                                           Op::kRename, Op::kSyncDir));

TEST(BlockStoreFaultTest, AFileThatCannotBeRemovedStillCounts) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  h.env.FailCall(Op::kSync, 1, absl::UnavailableError("EIO"));
  h.env.FailCall(Op::kUnlink, 1, absl::UnavailableError("EIO"));
  h.StoreAll(ChainOf(1, 16));
  EXPECT_TRUE(h.HasTempFiles());
  EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
  ASSERT_TRUE(h.Open().ok());
  EXPECT_FALSE(h.HasTempFiles());
}

TEST(BlockStoreFaultTest, AnAnnouncedBlockSurvivesALossOfPowerFromTheStart) {
  // The directory itself is new, and so are those above it.
  StoreHarness h;
  h.options.dir = "/a/b/cache";
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 40);
  h.StoreAll(chain);
  h.env.Restart(SimDisk::Unsynced::kDropped);
  ASSERT_TRUE(h.Open().ok());
  EXPECT_EQ(h.entries.size(), chain.size());
}

TEST(BlockStoreFaultTest, WhatAKilledProcessLeftIsDurableOnceItIsFound) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  ASSERT_TRUE(h.Store(ChainOf(1, 16)[0]).ok());
  // Killed between the rename and the sync of the directory.
  h.env.FailCall(Op::kSyncDir, 1, absl::UnavailableError("killed"));
  h.env.FailCall(Op::kUnlink, 1, absl::UnavailableError("killed"));
  h.writers.RunAll();
  h.env.Restart(SimDisk::Unsynced::kKept);
  ASSERT_TRUE(h.Open().ok());
  ASSERT_EQ(h.entries.size(), 1u);
  h.env.Restart(SimDisk::Unsynced::kDropped);
  ASSERT_TRUE(h.Open().ok());
  EXPECT_EQ(h.entries.size(), 1u);
}

TEST(BlockStoreFaultTest, RenamesThatSurviveWithoutTheirDataAreNotServed) {
  // A disk that loses synced data lies; what it left must not be believed.
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 32);
  h.StoreAll(chain);
  SimDisk::Bytes zeros(h.env.Contents(h.PathOf(chain[1])).size());
  h.env.Put(h.PathOf(chain[1]), zeros);
  ASSERT_TRUE(h.Open().ok());
  EXPECT_EQ(h.entries.size(), 1u);
}

TEST(BlockStoreFaultTest, ARemoveUndoesAWriteThatRuns) {
  for (const Op op :
       {Op::kCreate, Op::kWrite, Op::kSync, Op::kRename, Op::kSyncDir}) {
    StoreHarness h;
    ASSERT_TRUE(h.Open().ok());
    const auto chain = ChainOf(1, 32);
    ASSERT_TRUE(h.Store(chain[0]).ok());
    ASSERT_TRUE(h.Store(chain[1]).ok());
    h.env.Stall(op);
    std::thread writer([&] { h.writers.RunOne(); });
    h.env.WaitForStalled(op);
    h.store->Remove(chain[1].key);
    h.env.Release(op);
    writer.join();
    const auto events = h.store->TakeEvents();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(std::get<cache::StoredEvent>(events[0]).key, chain[0].key);
    EXPECT_FALSE(h.env.Exists(h.PathOf(chain[1])));
    EXPECT_FALSE(h.HasTempFiles());
    EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
    h.StoreAll(chain);
    EXPECT_TRUE(h.LoadAndCheck(chain[1]).ok());
  }
}

TEST(BlockStoreFaultTest, AStoreAfterARemoveThatUndoesIsStored) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 16);
  ASSERT_TRUE(h.Store(chain[0]).ok());
  h.env.Stall(Op::kSync);
  std::thread writer([&] { h.writers.RunOne(); });
  h.env.WaitForStalled(Op::kSync);
  h.store->Remove(chain[0].key);
  ASSERT_TRUE(h.Store(chain[0]).ok());
  h.env.Release(Op::kSync);
  writer.join();
  h.writers.RunAll();
  EXPECT_EQ(h.store->TakeEvents().size(), 1u);
  EXPECT_TRUE(h.LoadAndCheck(chain[0]).ok());
}

TEST(BlockStoreFaultTest, AStalledDiskStallsNobodyWhoAsks) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 48);
  h.StoreAll({chain[0]});
  h.store->TakeEvents();
  h.env.Stall(Op::kWrite);
  ASSERT_TRUE(h.Store(chain[1]).ok());
  std::thread writer([&] { h.writers.RunOne(); });
  h.env.WaitForStalled(Op::kWrite);
  // All of the engine's calls return, and reads go on.
  EXPECT_TRUE(h.Store(chain[2]).ok());
  h.store->Touch({{chain[0].key}});
  EXPECT_EQ(h.store->stats().pending_stores, 2u);
  EXPECT_TRUE(h.store->TakeEvents().empty());
  EXPECT_TRUE(h.LoadAndCheck(chain[0]).ok());
  h.store->Remove(chain[0].key);
  h.env.Release(Op::kWrite);
  writer.join();
  h.writers.RunAll();
  EXPECT_EQ(h.store->TakeEvents().size(), 2u);
}

TEST(BlockStoreFaultTest, ClosingWaitsForTheWriteThatRuns) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 16);
  ASSERT_TRUE(h.Store(chain[0]).ok());
  h.env.Stall(Op::kSync);
  std::thread writer([&] { h.writers.RunOne(); });
  h.env.WaitForStalled(Op::kSync);
  std::thread closer([&] { h.store.reset(); });
  h.env.Release(Op::kSync);
  closer.join();
  writer.join();
  EXPECT_EQ(h.pool.used_bytes(), 0u);
  ASSERT_TRUE(h.Open().ok());
  EXPECT_FALSE(h.HasTempFiles());
}

class ClosingTest : public ::testing::TestWithParam<Op> {};

TEST_P(ClosingTest, WaitsForTheOneCallThatRunsAndNothingElse) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 16 * 20);
  h.store->Keep(RecordOf("session", chain), {});
  h.writers.RunAll();
  for (const BlockIdentity& identity : chain) {
    ASSERT_TRUE(h.Store(identity).ok());
  }
  h.env.Stall(GetParam());
  std::thread writer([&] { h.writers.RunAll(); });
  h.env.WaitForStalled(GetParam());
  h.store->BeginClosing();
  const int calls = h.env.total_calls();
  h.env.Release(GetParam());
  writer.join();
  // Closing a file is none.
  EXPECT_EQ(h.env.total_calls(), calls);
  const auto events = h.store->TakeEvents();
  if (GetParam() == Op::kSyncDir) {
    // With that call they are durable.
    EXPECT_EQ(StoreHarness::Only<cache::StoredEvent>(events).size(),
              chain.size());
  } else {
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(h.store->stats().pending_stores, chain.size());
  }
  EXPECT_TRUE(
      absl::IsUnavailable(h.store->Store({chain[0], h.MakeBlock(chain[0])})));
  h.store.reset();
  EXPECT_EQ(h.pool.used_bytes(), 0u);
  ASSERT_TRUE(h.Open().ok());
  EXPECT_FALSE(h.HasTempFiles());
  h.StoreAll(chain);
  for (const BlockIdentity& identity : chain) {
    EXPECT_TRUE(h.LoadAndCheck(identity).ok());
  }
  EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
}

INSTANTIATE_TEST_SUITE_P(Steps, ClosingTest,
                         ::testing::Values(Op::kSpace, Op::kCreate, Op::kWrite,
                                           Op::kSync, Op::kRename,
                                           Op::kSyncDir));

TEST(BlockStoreFaultTest, ClosingEndsRemovalsTimesRecordsAndReadsBetweenTwo) {
  for (const Op op : {Op::kUnlink, Op::kSetModified, Op::kRename, Op::kOpen}) {
    StoreHarness h;
    h.options.touch_interval = std::chrono::milliseconds(0);
    ASSERT_TRUE(h.Open().ok());
    const auto chain = ChainOf(1, 16 * 6);
    h.StoreAll(chain);
    h.clock.Advance(std::chrono::seconds(1));
    h.env.Stall(op);
    for (size_t i = 0; i < chain.size(); ++i) {
      if (op == Op::kUnlink) {
        h.store->Remove(chain[i].key);
      } else if (op == Op::kSetModified) {
        h.store->Touch({{chain[i].key}});
      } else if (op == Op::kRename) {
        h.store->Keep(RecordOf("session" + std::to_string(i), chain), {});
      } else {
        h.Load(chain[i]);
      }
    }
    h.store->TakeEvents();
    std::thread worker([&] {
      h.writers.RunAll();
      h.readers.RunAll();
    });
    h.env.WaitForStalled(op);
    h.store->BeginClosing();
    const int calls = h.env.total_calls();
    h.env.Release(op);
    worker.join();
    // Of an opened file the size is looked at.
    EXPECT_LE(h.env.total_calls(), calls + (op == Op::kOpen ? 1 : 0));
    EXPECT_TRUE(h.store->TakeEvents().empty());
    h.store.reset();
    EXPECT_EQ(h.pool.used_bytes(), 0u);
  }
}

TEST(BlockStoreFaultTest, ADamagedFileFoundByAReadSparesALaterWriteOfIt) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = ChainOf(1, 16);
  h.StoreAll(chain);
  auto bytes = h.env.Contents(h.PathOf(chain[0]));
  bytes[5000] ^= std::byte{1};
  h.env.Put(h.PathOf(chain[0]), bytes);
  h.Load(chain[0]);
  h.env.Stall(Op::kRead);
  std::thread reader([&] { h.readers.RunAll(); });
  h.env.WaitForStalled(Op::kRead);
  // Meanwhile the file is replaced by a good one.
  h.store->Remove(chain[0].key);
  ASSERT_TRUE(h.Store(chain[0]).ok());
  h.writers.RunAll();
  h.env.Release(Op::kRead);
  reader.join();
  h.writers.RunAll();
  EXPECT_EQ(h.store->stats().entries, 1u);
  EXPECT_TRUE(h.LoadAndCheck(chain[0]).ok());
}

TEST(BlockStoreFaultTest, ATailMayGrowWhileItsWriteRuns) {
  // Real threads: ThreadSanitizer sees any byte that both touch.
  StoreHarness h;
  ThreadExecutor writers("writer", 1);
  ThreadExecutor readers("reader", 2);
  absl::StatusOr<OpenedStore> opened = BlockStore::Open(
      h.options, {&h.env, &h.clock, &writers, &readers, NullLogger()});
  ASSERT_TRUE(opened.ok());
  BlockStore& store = *opened->store;
  const auto full = ChainOf(1, 16);
  const BlockGeometry& geometry = h.pool.geometry(0, 0);
  const std::vector<std::byte> contents = ContentsOf(full[0], geometry);
  cache::BlockRef block = *h.pool.Allocate(0, 0);
  std::vector<BlockIdentity> tails;
  for (uint32_t tokens = 1; tokens <= 16; ++tokens) {
    // The engine writes token number `tokens - 1` of every row.
    uint32_t row = 0;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (const PlaneGeometry& plane : geometry.planes()) {
        for (uint32_t head = 0; head < plane.heads; ++head, ++row) {
          const size_t at =
              geometry.PlaneOffset(
                  layer,
                  static_cast<uint32_t>(&plane - geometry.planes().data())) +
              head * size_t{plane.token_bytes} * 16 +
              (tokens - 1) * size_t{plane.token_bytes};
          std::memcpy(block->data() + at, contents.data() + at,
                      plane.token_bytes);
        }
      }
    }
    const auto tail = ChainOf(1, tokens);
    ASSERT_TRUE(store.Store({tail[0], block}).ok());
    tails.push_back(tail[0]);
  }
  size_t stored = 0;
  while (stored < tails.size()) {
    for (const auto& event : store.TakeEvents()) {
      ASSERT_TRUE(std::holds_alternative<cache::StoredEvent>(event));
      ++stored;
    }
    std::this_thread::yield();
  }
  for (const BlockIdentity& tail : tails) {
    cache::BlockRef slot = *h.pool.Allocate(0, 0);
    store.Load({tail, slot});
  }
  size_t loaded = 0;
  while (loaded < tails.size()) {
    for (const auto& event : store.TakeEvents()) {
      const auto* done = std::get_if<cache::LoadedEvent>(&event);
      ASSERT_NE(done, nullptr);
      for (const BlockIdentity& tail : tails) {
        if (tail.key == done->key) {
          std::vector<std::byte> wanted(
              geometry.PayloadBytes(static_cast<uint32_t>(tail.tokens.size())));
          geometry.Pack(contents.data(),
                        static_cast<uint32_t>(tail.tokens.size()),
                        wanted.data());
          std::vector<std::byte> found(wanted.size());
          geometry.Pack(done->block->data(),
                        static_cast<uint32_t>(tail.tokens.size()),
                        found.data());
          EXPECT_EQ(found, wanted);
        }
      }
      ++loaded;
    }
    std::this_thread::yield();
  }
}

TEST(BlockStoreFaultTest, RandomOperationsAgreeWithASimpleModel) {
  // What is announced is believed; afterwards exactly that is found and right.
  std::mt19937 random(7);
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  std::vector<BlockIdentity> all;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    for (const GroupIndex group : {0, 1}) {
      const auto chain = ChainOf(seed, 70, group);
      all.insert(all.end(), chain.begin(), chain.end());
    }
  }
  std::set<std::pair<NodeId, GroupIndex>> model;
  const auto take_events = [&] {
    for (const auto& event : h.store->TakeEvents()) {
      if (const auto* stored = std::get_if<cache::StoredEvent>(&event)) {
        model.insert({stored->key.node, stored->key.group});
      }
      if (const auto* failed = std::get_if<cache::LoadFailedEvent>(&event)) {
        model.erase({failed->key.node, failed->key.group});
      }
    }
  };
  constexpr Op kOps[] = {Op::kCreate, Op::kWrite,   Op::kSync,
                         Op::kRename, Op::kSyncDir, Op::kRead};
  for (int step = 0; step < 4000; ++step) {
    const BlockIdentity& identity = all[random() % all.size()];
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        h.Store(identity).IgnoreError();
        break;
      case 3:
        take_events();
        h.store->Remove(identity.key);
        model.erase({identity.key.node, identity.key.group});
        break;
      case 4:
        h.writers.RunOne();
        break;
      case 5:
        h.Load(identity);
        h.readers.RunAll();
        break;
      case 6:
        if (random() % 4 == 0) {
          h.env.FailCall(kOps[random() % 6], 1 + random() % 3,
                         absl::UnavailableError("EIO"));
        }
        break;
      default:
        if (random() % 16 == 0) {
          h.env.ClearFaults();
          h.writers.RunAll();
          take_events();
          ASSERT_TRUE(h.Open().ok());
          std::set<std::pair<NodeId, GroupIndex>> found;
          for (const auto& entry : h.entries) {
            found.insert({entry.identity.key.node, entry.identity.key.group});
          }
          // A block that could not be read once may have come back.
          EXPECT_TRUE(std::includes(found.begin(), found.end(), model.begin(),
                                    model.end()));
          model = found;
          EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
        }
    }
    take_events();
  }
}

}  // namespace
}  // namespace everwarm::store
