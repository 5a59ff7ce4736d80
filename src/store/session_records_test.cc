// Records of sessions in a store: kept, replaced, found again, counted, evicted
// and lost, with a stop at every call.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;
using cache::SessionRecord;
using Op = SimDisk::Op;
using Unsynced = SimDisk::Unsynced;

std::vector<BlockIdentity> ChainOf(uint32_t seed, TokenPos tokens) {
  return Chain(seed, tokens, TestFingerprint());
}

class SessionRecordsTest : public testing::Test {
 protected:
  SessionRecordsTest() { EXPECT_TRUE(h_.Open().ok()); }

  // The session comes to the end of the chain.
  SessionRecord Come(const std::string& session,
                     const std::vector<BlockIdentity>& chain,
                     std::vector<cache::RecordId> replaces = {}) {
    const SessionRecord record = RecordOf(session, chain);
    h_.store->Keep(record, std::move(replaces));
    h_.StoreAll(chain);
    return record;
  }
  bool Found(const SessionRecord& record) const {
    return std::any_of(h_.sessions.begin(), h_.sessions.end(),
                       [&](const cache::SessionEntry& entry) {
                         return entry.record.id() == record.id() &&
                                entry.record.path == record.path;
                       });
  }
  void ExpectAllIsCounted() {
    EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
    EXPECT_FALSE(h_.HasTempFiles());
  }
  StoreHarness h_;
};

TEST_F(SessionRecordsTest, ARecordSurvivesAPowerLossWithItsBlocks) {
  const SessionRecord record = Come("s", ChainOf(1, 40));
  ExpectAllIsCounted();
  h_.env.Restart(Unsynced::kDropped);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(Found(record));
  EXPECT_EQ(h_.entries.size(), 3u);
  EXPECT_EQ(h_.store->stats().entries, 3u);
  ExpectAllIsCounted();
}

TEST_F(SessionRecordsTest, WhatIsReplacedGoes) {
  const SessionRecord first = Come("s", ChainOf(1, 40));
  const SessionRecord second = Come("s", ChainOf(1, 64), {first.id()});
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(first)));
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(second)));
  ExpectAllIsCounted();
}

TEST_F(SessionRecordsTest, OneThatWaitsAndIsReplacedIsNeverWritten) {
  const SessionRecord first = Come("s", ChainOf(1, 20));
  const SessionRecord second = RecordOf("s", ChainOf(1, 40));
  const SessionRecord third = RecordOf("s", ChainOf(1, 60));
  const int created = h_.env.count(Op::kCreate);
  h_.store->Keep(second, {first.id()});
  h_.store->Keep(third, {second.id()});
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kCreate), created + 1);
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(first)));
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(third)));
}

TEST_F(SessionRecordsTest, TheSameRecordAgainIsAUseAndNoWrite) {
  const SessionRecord record = Come("s", ChainOf(1, 20));
  h_.clock.Advance(std::chrono::hours(2));
  const int created = h_.env.count(Op::kCreate);
  h_.store->Keep(record, {});
  h_.writers.RunAll();
  EXPECT_EQ(h_.env.count(Op::kCreate), created);
  EXPECT_EQ(h_.env.Stat(h_.PathOf(record))->modified, h_.clock.WallNow());
}

TEST_F(SessionRecordsTest, ARecordIsThereBeforeTheBlocksThatItNames) {
  const auto chain = ChainOf(1, 40);
  for (const BlockIdentity& identity : chain) {
    ASSERT_TRUE(h_.Store(identity).ok());
  }
  const SessionRecord record = RecordOf("s", chain);
  h_.store->Keep(record, {});
  // The power goes at the first name of a block.
  h_.env.FailCall(Op::kCreate, 2, absl::UnavailableError("EIO"), 100);
  h_.writers.RunAll();
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(record)));
}

TEST_F(SessionRecordsTest, ARecordOfNothingGoesAtTheNextStart) {
  h_.store->Keep(RecordOf("s", ChainOf(1, 40)), {});
  h_.writers.RunAll();
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.sessions.empty());
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(RecordOf("s", ChainOf(1, 40)))));
  ExpectAllIsCounted();
}

class EachSessionStepTest : public SessionRecordsTest,
                            public testing::WithParamInterface<Op> {};

TEST_P(EachSessionStepTest, FailingOnceLosesTheRecordAndNothingElse) {
  const SessionRecord first = Come("s", ChainOf(1, 20));
  h_.env.FailCall(GetParam(), 1, absl::UnavailableError("EIO"));
  const SessionRecord second = RecordOf("s", ChainOf(1, 40));
  h_.store->Keep(second, {first.id()});
  h_.writers.RunAll();
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(second)));
  // What it would have replaced is still there.
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(first)));
  ExpectAllIsCounted();
  EXPECT_EQ(h_.store->stats().failed_stores, 0u);
  h_.store->Keep(second, {first.id()});
  h_.writers.RunAll();
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(second)));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(first)));
  ExpectAllIsCounted();
}

INSTANTIATE_TEST_SUITE_P(Steps, EachSessionStepTest,
                         testing::Values(Op::kCreate, Op::kWrite, Op::kSync,
                                         Op::kRename, Op::kSyncDir));

TEST_F(SessionRecordsTest, AStopAtAnyCallLeavesARecordAndAllBlocks) {
  const auto before = ChainOf(1, 40);
  const auto after = ChainOf(1, 64);
  const SessionRecord first = RecordOf("s", before);
  const SessionRecord second = RecordOf("s", after);
  for (const Unsynced unsynced : {Unsynced::kKept, Unsynced::kDropped,
                                  Unsynced::kTorn, Unsynced::kReordered}) {
    bool stopped = true;
    for (int call = 1; stopped; ++call) {
      ASSERT_LT(call, 200);
      StoreHarness h;
      ASSERT_TRUE(h.Open().ok());
      h.store->Keep(first, {});
      h.StoreAll(before);
      h.env.CrashAtCall(call);
      h.store->Keep(second, {first.id()});
      h.StoreAll({after.begin() + 2, after.end()});
      stopped = h.env.crashed();
      h.store.reset();
      h.env.Restart(unsynced, static_cast<uint64_t>(call));
      ASSERT_TRUE(h.Open().ok());
      // Never none; both where the first was not gone for good.
      std::vector<cache::RecordId> found;
      for (const cache::SessionEntry& entry : h.sessions) {
        EXPECT_EQ(entry.record.session, first.session);
        found.push_back(entry.record.id());
      }
      const auto has = [&](const SessionRecord& record) {
        return std::find(found.begin(), found.end(), record.id()) !=
               found.end();
      };
      EXPECT_TRUE(has(first) || has(second)) << call;
      EXPECT_TRUE(stopped || has(second));
      EXPECT_EQ(h.store->stats().damaged, 0u) << call;
      for (const BlockIdentity& identity : before) {
        EXPECT_TRUE(h.LoadAndCheck(identity).ok()) << call;
      }
      // A block of the session's that is there is named by a record.
      if (h.entries.size() > before.size()) {
        EXPECT_TRUE(has(second)) << call;
      }
      EXPECT_FALSE(h.HasTempFiles());
      EXPECT_EQ(h.store->stats().bytes, h.env.used_bytes());
    }
  }
}

TEST_F(SessionRecordsTest, ADamagedRecordIsSetAsideAndTheBlocksStay) {
  const auto chain = ChainOf(1, 40);
  const SessionRecord record = Come("s", chain);
  SimDisk::Bytes good = h_.env.Contents(h_.PathOf(record));
  SimDisk::Bytes flipped = good;
  flipped[200] ^= std::byte{1};
  SimDisk::Bytes foreign = good;
  foreign[32] ^= std::byte{1};
  SealSession(absl::MakeSpan(foreign));
  for (const SimDisk::Bytes& bad :
       {flipped, foreign, SimDisk::Bytes(),
        SimDisk::Bytes(good.begin(), good.begin() + 99)}) {
    h_.store.reset();
    h_.env.Put(h_.PathOf(record), bad);
    ASSERT_TRUE(h_.Open().ok());
    EXPECT_TRUE(h_.sessions.empty());
    EXPECT_EQ(h_.entries.size(), 3u);
    EXPECT_EQ(h_.store->stats().damaged, 1u);
    EXPECT_FALSE(h_.env.Exists(h_.PathOf(record)));
    ExpectAllIsCounted();
  }
}

TEST_F(SessionRecordsTest, ARecordUnderAnothersNameIsSetAside) {
  const SessionRecord record = Come("s", ChainOf(1, 40));
  const SessionRecord other = RecordOf("t", ChainOf(1, 40));
  h_.env.Put(h_.PathOf(other), h_.env.Contents(h_.PathOf(record)));
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.sessions.size(), 1u);
  EXPECT_TRUE(Found(record));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(other)));
}

TEST_F(SessionRecordsTest, ADirectoryOrFifoOfThatNameIsSetAside) {
  const SessionRecord record = Come("s", ChainOf(1, 40));
  h_.store.reset();
  h_.env.Put(h_.PathOf(record), {}, FileKind::kOther);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.sessions.empty());
  EXPECT_EQ(h_.entries.size(), 3u);
}

TEST_F(SessionRecordsTest, ARecordOutlastsItsBlocksUnderTheCap) {
  const auto chain = ChainOf(1, 40);
  const SessionRecord record = Come("s", chain);
  h_.clock.Advance(std::chrono::hours(1));
  // Room for some blocks more, then the oldest must go.
  h_.options.max_bytes = h_.env.used_bytes() + 3 * 8192 + 8192;
  ASSERT_TRUE(h_.Open().ok());
  uint32_t seed = 10;
  while (h_.env.Exists(h_.PathOf(record))) {
    ASSERT_LT(seed, 100u);
    h_.StoreAll(ChainOf(seed++, 16));
    EXPECT_LE(h_.env.used_bytes(), h_.options.max_bytes);
    if (!h_.env.Exists(h_.PathOf(record))) {
      break;
    }
  }
  for (const BlockIdentity& identity : chain) {
    EXPECT_FALSE(h_.env.Exists(h_.PathOf(identity)));
  }
  ExpectAllIsCounted();
}

TEST_F(SessionRecordsTest, RecordsNeverPassTheCap) {
  h_.options.max_bytes = h_.env.used_bytes() + 10 * 8192;
  ASSERT_TRUE(h_.Open().ok());
  h_.env.ResetPeak();
  for (uint32_t seed = 1; seed < 60; ++seed) {
    Come(absl::StrCat("s", seed), ChainOf(seed, 16));
    h_.clock.Advance(std::chrono::seconds(1));
    EXPECT_EQ(h_.store->stats().bytes, h_.env.used_bytes());
  }
  EXPECT_LE(h_.env.peak_bytes(), h_.options.max_bytes);
  ASSERT_TRUE(h_.Open().ok());
  ExpectAllIsCounted();
}

TEST_F(SessionRecordsTest, RecordsOfAnotherModelCountAndGoInTheirTurn) {
  const SessionRecord record = Come("s", ChainOf(1, 40));
  const std::string path = h_.PathOf(record);
  h_.clock.Advance(std::chrono::hours(1));
  h_.options.fingerprint = TestFingerprint(2);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.sessions.empty());
  EXPECT_TRUE(h_.env.Exists(path));
  ExpectAllIsCounted();
  h_.options.max_bytes = h_.env.used_bytes();
  ASSERT_TRUE(h_.Open().ok());
  for (uint32_t seed = 10; seed < 20; ++seed) {
    h_.StoreAll(Chain(seed, 16, TestFingerprint(2)));
  }
  EXPECT_FALSE(h_.env.Exists(path));
  ExpectAllIsCounted();
}

}  // namespace
}  // namespace everwarm::store
