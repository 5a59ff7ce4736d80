#include "store/block_store.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;
using Op = SimDisk::Op;

class BlockStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(h_.Open().ok()); }
  std::vector<BlockIdentity> ChainOf(uint32_t seed, TokenPos tokens,
                                     GroupIndex group = 0) const {
    return Chain(seed, tokens, h_.options.fingerprint, group);
  }
  StoreHarness h_;
};

TEST_F(BlockStoreTest, AStoredBlockIsReadBackBitForBit) {
  for (const GroupIndex group : {0, 1}) {
    const auto chain = ChainOf(1, 40, group);
    h_.StoreAll(chain);
    const auto stored =
        StoreHarness::Only<cache::StoredEvent>(h_.store->TakeEvents());
    ASSERT_EQ(stored.size(), 3u);
    for (const BlockIdentity& identity : chain) {
      EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
    }
  }
}

TEST_F(BlockStoreTest, NothingIsAnnouncedBeforeTheDirectoryIsSynced) {
  const auto chain = ChainOf(1, 16);
  ASSERT_TRUE(h_.Store(chain[0]).ok());
  EXPECT_TRUE(h_.store->TakeEvents().empty());
  const int syncs = h_.env.count(Op::kSyncDir);
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kSyncDir), syncs + 1);
  EXPECT_EQ(h_.store->TakeEvents().size(), 1u);
  EXPECT_FALSE(h_.HasTempFiles());
}

TEST_F(BlockStoreTest, ABatchSyncsEachFileOnceAndTheDirectoryOnce) {
  const int dir_syncs = h_.env.count(Op::kSyncDir);
  const int syncs = h_.env.count(Op::kSync);
  h_.StoreAll(ChainOf(1, 16 * 8));
  EXPECT_EQ(h_.env.count(Op::kSyncDir), dir_syncs + 1);
  EXPECT_EQ(h_.env.count(Op::kSync), syncs + 8);
}

TEST_F(BlockStoreTest, ARestartFindsWhatWasStoredParentsFirst) {
  auto blocks = ChainOf(1, 40);
  const auto others = ChainOf(2, 60, 1);
  blocks.insert(blocks.end(), others.begin(), others.end());
  h_.StoreAll(blocks);
  ASSERT_TRUE(h_.Open().ok());
  ASSERT_EQ(h_.entries.size(), blocks.size());
  std::set<std::string> seen;
  for (const cache::TierEntry& entry : h_.entries) {
    EXPECT_TRUE(entry.identity.start == 0 ||
                seen.contains(entry.identity.parent.hex()));
    seen.insert(entry.identity.key.node.hex());
    EXPECT_GT(entry.bytes, 0u);
  }
  for (const BlockIdentity& identity : blocks) {
    EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
  }
}

TEST_F(BlockStoreTest, WhatIsDurableIsNotWrittenAgain) {
  const auto chain = ChainOf(1, 40);
  h_.StoreAll(chain);
  h_.store->TakeEvents();
  const int writes = h_.env.count(Op::kWrite);
  h_.StoreAll(chain);
  EXPECT_EQ(h_.env.count(Op::kWrite), writes);
  EXPECT_EQ(
      StoreHarness::Only<cache::StoredEvent>(h_.store->TakeEvents()).size(),
      chain.size());
}

TEST_F(BlockStoreTest, AFullQueueRefusesAndTakesAgainLater) {
  h_.options.max_queued_stores = 2;
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 48);
  EXPECT_TRUE(h_.Store(chain[0]).ok());
  EXPECT_TRUE(h_.Store(chain[1]).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(h_.Store(chain[2])));
  h_.writers.RunAll();
  EXPECT_TRUE(h_.Store(chain[2]).ok());
}

TEST_F(BlockStoreTest, AQueueOfManyBytesRefusesToo) {
  h_.options.max_queued_bytes = 20000;
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 48);
  EXPECT_TRUE(h_.Store(chain[0]).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(h_.Store(chain[1])));
}

TEST_F(BlockStoreTest, AQueuedWriteIsNotStartedAfterRemove) {
  const auto chain = ChainOf(1, 16);
  ASSERT_TRUE(h_.Store(chain[0]).ok());
  h_.store->Remove(chain[0].key);
  const int creates = h_.env.count(Op::kCreate);
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kCreate), creates);
  EXPECT_TRUE(h_.store->TakeEvents().empty());
  EXPECT_EQ(h_.pool.used_bytes(), 0u);
}

TEST_F(BlockStoreTest, StoresThatHaveNotBegunCanBeTakenBack) {
  const auto chain = Chain(1, 40, TestFingerprint());
  for (const cache::BlockIdentity& identity : chain) {
    ASSERT_TRUE(h_.Store(identity).ok());
  }
  std::vector<BlockKey> keys;
  for (const cache::BlockIdentity& identity : chain) {
    keys.push_back(identity.key);
  }
  EXPECT_EQ(h_.store->TakeBackStores(), keys);
  EXPECT_EQ(h_.store->stats().pending_stores, 0u);
  EXPECT_EQ(h_.store->stats().pending_store_bytes, 0u);
  EXPECT_EQ(h_.pool.used_bytes(), 0u);
  h_.writers.RunAll();
  EXPECT_TRUE(h_.store->TakeEvents().empty());
  EXPECT_TRUE(h_.store->TakeBackStores().empty());
  // Asked for again, they are stored.
  h_.StoreAll(chain);
  EXPECT_EQ(
      StoreHarness::Only<cache::StoredEvent>(h_.store->TakeEvents()).size(),
      3u);
}

TEST_F(BlockStoreTest, RemoveDeletesTheFileAndALaterStoreWorks) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  h_.store->TakeEvents();
  const uint64_t bytes = h_.store->stats().bytes;
  h_.store->Remove(chain[0].key);
  // Asked for before the removal was carried out.
  ASSERT_TRUE(h_.Store(chain[0]).ok());
  h_.writers.RunAll();
  EXPECT_EQ(h_.store->TakeEvents().size(), 1u);
  EXPECT_TRUE(h_.LoadAndCheck(chain[0]).ok());
  EXPECT_EQ(h_.store->stats().bytes, bytes);
  h_.store->Remove(chain[0].key);
  h_.writers.RunAll();
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(chain[0])));
  EXPECT_TRUE(absl::IsNotFound(h_.LoadAndCheck(chain[0])));
  EXPECT_EQ(h_.store->stats().entries, 0u);
}

TEST_F(BlockStoreTest, NoEventFollowsARemove) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  h_.store->Remove(chain[0].key);
  h_.writers.RunAll();
  EXPECT_TRUE(h_.store->TakeEvents().empty());
}

TEST_F(BlockStoreTest, OtherTokensUnderTheSameNameAreNotServed) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  BlockIdentity other = chain[0];
  other.tokens[7] += 1;
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(other)));
}

TEST_F(BlockStoreTest, AnotherParentRootOrStartIsNotServed) {
  const auto chain = ChainOf(1, 32);
  for (int field = 0; field < 3; ++field) {
    ASSERT_TRUE(h_.Open().ok());
    h_.StoreAll(chain);
    BlockIdentity other = chain[1];
    if (field == 0) other.parent.digest[0] ^= 1;
    if (field == 1) other.root.digest[0] ^= 1;
    if (field == 2) other.start += 16;
    EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(other))) << field;
    h_.writers.RunAll();
  }
}

TEST_F(BlockStoreTest, ADamagedBlockIsSetAsideOnceAndCanBeStoredAgain) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  auto bytes = h_.env.Contents(h_.PathOf(chain[0]));
  bytes[5000] ^= std::byte{1};
  h_.env.Put(h_.PathOf(chain[0]), bytes);
  const uint64_t counted = h_.store->stats().bytes;
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[0])));
  h_.writers.RunAll();
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(chain[0])));
  EXPECT_EQ(h_.store->stats().damaged, 1u);
  // It is still on the disk, so it still counts.
  EXPECT_GE(h_.store->stats().bytes, counted);
  EXPECT_TRUE(absl::IsNotFound(h_.LoadAndCheck(chain[0])));
  h_.StoreAll(chain);
  EXPECT_TRUE(h_.LoadAndCheck(chain[0]).ok());
  EXPECT_EQ(h_.store->stats().damaged, 1u);
}

TEST_F(BlockStoreTest, EveryPageOfAPayloadIsChecked) {
  for (const TokenPos tokens : {16u, 9u}) {
    const auto chain = ChainOf(1, tokens);
    h_.StoreAll(chain);
    const auto good = h_.env.Contents(h_.PathOf(chain[0]));
    const size_t payload = h_.GeometryOf(chain[0]).PayloadBytes(tokens);
    for (size_t at = 0; at < payload; at += 4096) {
      auto bytes = good;
      bytes[kHeaderBytes + at] ^= std::byte{0x80};
      h_.env.Put(h_.PathOf(chain[0]), bytes);
      ASSERT_TRUE(h_.Open().ok());
      EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[0]))) << at;
      h_.writers.RunAll();
    }
  }
}

TEST_F(BlockStoreTest, AFileCutAnywhereIsAMissAtOpenAndLater) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  const auto good = h_.env.Contents(h_.PathOf(chain[0]));
  // At each byte of the header, then around each page of the payload.
  std::vector<size_t> sizes;
  for (size_t size = 0; size <= kHeaderBytes; ++size) {
    sizes.push_back(size);
  }
  for (size_t page = kHeaderBytes; page <= good.size(); page += 4096) {
    sizes.insert(sizes.end(), {page - 1, page + 1});
    if (page < good.size()) {
      sizes.push_back(page);
    }
  }
  for (const size_t size : sizes) {
    auto bytes = good;
    bytes.resize(size);
    h_.env.Put(h_.PathOf(chain[0]), good);
    ASSERT_TRUE(h_.Open().ok());
    h_.env.Put(h_.PathOf(chain[0]), bytes);
    EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[0]))) << size;
    h_.writers.RunAll();
    h_.env.Put(h_.PathOf(chain[0]), bytes);
    ASSERT_TRUE(h_.Open().ok());
    EXPECT_TRUE(h_.entries.empty()) << size;
    EXPECT_FALSE(h_.env.Exists(h_.PathOf(chain[0])));
    EXPECT_EQ(h_.store->stats().damaged, 1u);
    // Old ones make the scan slow, and this test.
    for (const std::string& path : h_.env.Paths()) {
      if (absl::StartsWith(path, "/cache/damaged/")) {
        ASSERT_TRUE(h_.env.Unlink(path).ok());
      }
    }
  }
}

TEST_F(BlockStoreTest, AnyChangedBitIsAMissAtOpenOrLater) {
  const auto chain = ChainOf(1, 9);
  h_.StoreAll(chain);
  const std::string path = h_.PathOf(chain[0]);
  const auto good = h_.env.Contents(path);
  const size_t payload_end =
      kHeaderBytes + h_.GeometryOf(chain[0]).PayloadBytes(9);
  // Each byte of the header, some of the payload; the padding says nothing.
  for (size_t at = 0; at < payload_end; at += at < kHeaderBytes ? 1 : 97) {
    h_.env.Put(path, good);
    h_.env.FlipBit(path, at, static_cast<int>(at % 8));
    ASSERT_TRUE(h_.Open().ok());
    EXPECT_EQ(h_.entries.empty(), at < kHeaderBytes) << at;
    EXPECT_FALSE(h_.LoadAndCheck(chain[0]).ok()) << at;
    h_.writers.RunAll();
    for (const std::string& left : h_.env.Paths()) {
      if (absl::StartsWith(left, "/cache/damaged/")) {
        ASSERT_TRUE(h_.env.Unlink(left).ok());
      }
    }
  }
}

TEST_F(BlockStoreTest, TwoFilesThatChangedPlacesAreNeitherServed) {
  for (const bool running : {true, false}) {
    const auto chain = ChainOf(1, 48);
    h_.StoreAll(chain);
    const auto first = h_.env.Contents(h_.PathOf(chain[0]));
    h_.env.Put(h_.PathOf(chain[0]), h_.env.Contents(h_.PathOf(chain[1])));
    h_.env.Put(h_.PathOf(chain[1]), first);
    if (!running) {
      ASSERT_TRUE(h_.Open().ok());
      EXPECT_EQ(h_.entries.size(), 1u);
    }
    EXPECT_FALSE(h_.LoadAndCheck(chain[0]).ok());
    EXPECT_FALSE(h_.LoadAndCheck(chain[1]).ok());
    EXPECT_TRUE(h_.LoadAndCheck(chain[2]).ok());
    h_.writers.RunAll();
  }
}

TEST_F(BlockStoreTest, VerifyOffSkipsThePayloadAndNothingElse) {
  h_.options.verify_payload = false;
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 32);
  h_.StoreAll(chain);
  for (const auto& [index, at] : {std::pair{0, 5000}, std::pair{1, 100}}) {
    auto bytes = h_.env.Contents(h_.PathOf(chain[index]));
    bytes[at] ^= std::byte{1};
    h_.env.Put(h_.PathOf(chain[index]), bytes);
  }
  // The harness sees the difference; the store was told not to.
  EXPECT_EQ(h_.LoadAndCheck(chain[0]).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[1])));
}

TEST_F(BlockStoreTest, AnUnreadableFileIsGivenUpAfterOneTry) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  h_.env.FailCall(Op::kRead, 1, absl::UnavailableError("EIO"));
  EXPECT_TRUE(absl::IsUnavailable(h_.LoadAndCheck(chain[0])));
  EXPECT_EQ(h_.store->stats().entries, 0u);
  EXPECT_EQ(h_.store->stats().failed_loads, 1u);
  const uint64_t bytes = h_.store->stats().bytes;
  h_.StoreAll(chain);
  EXPECT_TRUE(h_.LoadAndCheck(chain[0]).ok());
  EXPECT_EQ(h_.store->stats().bytes, bytes);
}

TEST_F(BlockStoreTest, ATouchSetsTheFileTimeAtMostOnceAMinute) {
  const auto chain = ChainOf(1, 32);
  h_.StoreAll(chain);
  const std::vector<BlockKey> keys = {chain[1].key, chain[0].key};
  h_.clock.Advance(std::chrono::seconds(30));
  h_.store->Touch(keys);
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kSetModified), 0);
  h_.clock.Advance(std::chrono::seconds(31));
  h_.store->Touch(keys);
  h_.store->Touch(keys);
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kSetModified), 2);
  EXPECT_EQ(h_.env.Stat(h_.PathOf(chain[0]))->modified, h_.clock.WallNow());
}

TEST_F(BlockStoreTest, ASecondStoreOnTheDirectoryIsRefusedByName) {
  const auto second = BlockStore::Open(
      h_.options, {&h_.env, &h_.clock, &h_.writers, &h_.readers, NullLogger()});
  ASSERT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_NE(second.status().message().find("/cache"), std::string::npos);
  h_.store.reset();
  EXPECT_TRUE(h_.Open().ok());
}

TEST_F(BlockStoreTest, TempFilesOfDeadProcessesAreRemovedWhateverTheirDate) {
  const std::string own = "/cache/" + h_.options.fingerprint.hex() + "/tmp-7";
  const std::string foreign = "/cache/" + TestFingerprint(9).hex();
  ASSERT_TRUE(h_.env.MakeDir(foreign).ok());
  h_.env.Put(own, SimDisk::Bytes(5000));
  h_.env.Put(foreign + "/tmp-0", SimDisk::Bytes(5000));
  h_.env.SetTime(own, h_.clock.WallNow() + std::chrono::hours(24));
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_FALSE(h_.HasTempFiles());
}

TEST_F(BlockStoreTest, OddThingsUnderAnEntrysNameAreSetAside) {
  const auto chain = ChainOf(1, 48);
  h_.env.Put(h_.PathOf(chain[0]), {}, FileKind::kOther);
  ASSERT_TRUE(h_.env.MakeDir(h_.PathOf(chain[1])).ok());
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.entries.empty());
  h_.StoreAll(chain);
  for (const BlockIdentity& identity : chain) {
    EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
  }
}

TEST_F(BlockStoreTest, AnOddThingThatAppearsLaterIsSetAsideToo) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  h_.env.Put(h_.PathOf(chain[0]), {}, FileKind::kOther);
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[0])));
  h_.writers.RunAll();
  EXPECT_TRUE(absl::IsNotFound(h_.LoadAndCheck(chain[0])));
}

TEST_F(BlockStoreTest, AnotherBlocksFileUnderThisNameIsSetAside) {
  const auto chain = ChainOf(1, 32);
  h_.StoreAll(chain);
  h_.env.Put(h_.PathOf(chain[1]), h_.env.Contents(h_.PathOf(chain[0])));
  ASSERT_TRUE(h_.Open().ok());
  ASSERT_EQ(h_.entries.size(), 1u);
  EXPECT_EQ(h_.entries[0].identity.key, chain[0].key);
}

TEST_F(BlockStoreTest, FilesOfAnotherGeometryOrCodecAreNotServed) {
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  const auto bytes = h_.env.Contents(h_.PathOf(chain[0]));
  h_.options.groups[0].rest.codec = "q4";
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.entries.empty());
  h_.env.Put(h_.PathOf(chain[0]), bytes);
  EXPECT_TRUE(absl::IsDataLoss(h_.LoadAndCheck(chain[0])));
}

TEST_F(BlockStoreTest, FirstBlocksOfAnotherCodecComeBackInIt) {
  // A tail of the first kind, one of the other, and whole ones of both.
  for (const TokenPos length : {9, 16, 21, 50}) {
    const auto chain = Chain(length, length, TestFingerprint(), kMixed);
    h_.StoreAll(chain);
    ASSERT_TRUE(h_.Open().ok());
    for (const BlockIdentity& identity : chain) {
      const auto file = h_.env.Contents(h_.PathOf(identity));
      const auto header = DecodeHeader(absl::MakeConstSpan(file).first(4096));
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->scheme.codec, identity.start < 16 ? "f16" : "q4");
      EXPECT_EQ(file.size(), header->file_bytes());
      EXPECT_TRUE(h_.LoadAndCheck(identity).ok());
    }
  }
}

TEST_F(BlockStoreTest, ABlockInTheCodecOfOtherSpansIsNotServed) {
  const auto chain = Chain(1, 32, TestFingerprint(), kMixed);
  h_.StoreAll(chain);
  std::vector<std::vector<std::byte>> files;
  for (const BlockIdentity& identity : chain) {
    files.push_back(h_.env.Contents(h_.PathOf(identity)));
  }
  // As if the first tokens were one block more, or none.
  for (const uint32_t spans : {2, 0}) {
    const BlockIdentity& other = chain[spans == 0 ? 0 : 1];
    h_.options.groups[kMixed].first_spans = spans;
    ASSERT_TRUE(h_.Open().ok());
    ASSERT_EQ(h_.entries.size(), 1u);
    EXPECT_NE(h_.entries[0].identity.key, other.key);
    h_.env.Put(h_.PathOf(other), files[spans == 0 ? 0 : 1]);
    EXPECT_FALSE(h_.LoadAndCheck(other).ok());
    for (size_t i = 0; i < chain.size(); ++i) {
      h_.env.Put(h_.PathOf(chain[i]), files[i]);
    }
  }
}

TEST_F(BlockStoreTest, LoadsOfUnknownBlocksAreNotFound) {
  EXPECT_TRUE(absl::IsNotFound(h_.LoadAndCheck(ChainOf(1, 16)[0])));
}

TEST_F(BlockStoreTest, ManyLoadsAreSharedAmongTasksAndAllAnswered) {
  h_.options.reads_in_flight = 4;
  ASSERT_TRUE(h_.Open().ok());
  const auto chain = ChainOf(1, 16 * 30);
  h_.StoreAll(chain);
  h_.store->TakeEvents();
  for (const BlockIdentity& identity : chain) {
    h_.Load(identity);
  }
  EXPECT_EQ(h_.store->stats().pending_loads, 30u);
  h_.readers.RunAll();
  EXPECT_EQ(h_.store->stats().pending_loads, 0u);
  EXPECT_EQ(
      StoreHarness::Only<cache::LoadedEvent>(h_.store->TakeEvents()).size(),
      30u);
  EXPECT_EQ(h_.pool.used_bytes(), 0u);
}

TEST_F(BlockStoreTest, WakeUpFollowsEveryKindOfEvent) {
  int calls = 0;
  h_.store->SetWakeUp([&] { ++calls; });
  const auto chain = ChainOf(1, 16);
  h_.StoreAll(chain);
  EXPECT_EQ(calls, 1);
  h_.Load(chain[0]);
  h_.readers.RunAll();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(h_.Store(chain[0]).ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(BlockStoreTest, ClosingDropsWhatHasNotBegunAndReleasesBlocks) {
  const auto chain = ChainOf(1, 32);
  ASSERT_TRUE(h_.Store(chain[0]).ok());
  h_.Load(chain[1]);
  h_.store.reset();
  EXPECT_EQ(h_.pool.used_bytes(), 0u);
  // The tasks find nobody home.
  const int calls = h_.env.total_calls();
  h_.writers.RunAll();
  h_.readers.RunAll();
  EXPECT_EQ(h_.env.total_calls(), calls);
}

TEST_F(BlockStoreTest, StatsFollowAWriteThroughTheQueue) {
  const auto chain = ChainOf(1, 16);
  ASSERT_TRUE(h_.Store(chain[0]).ok());
  EXPECT_EQ(h_.store->stats().pending_stores, 1u);
  EXPECT_EQ(h_.store->stats().pending_store_bytes, 4096u + 12288u);
  h_.writers.RunAll();
  const cache::TierStats stats = h_.store->stats();
  EXPECT_EQ(stats.pending_stores, 0u);
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.stored, 1u);
  EXPECT_EQ(stats.stored_bytes, 4096u + 12288u);
  EXPECT_EQ(stats.bytes, h_.env.used_bytes());
}

}  // namespace
}  // namespace everwarm::store
