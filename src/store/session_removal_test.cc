// What `cache rm --session` takes, and what it leaves to others.
#include "store/session_removal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "store/maintenance.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using cache::BlockIdentity;
using Chains = std::vector<BlockIdentity>;

// The chain up to its block number `from`, and from there on other tokens.
Chains Branch(const Chains& chain, size_t from, TokenId change) {
  Chains branch(chain.begin(),
                chain.begin() + static_cast<std::ptrdiff_t>(from));
  for (size_t i = from; i < chain.size(); ++i) {
    BlockIdentity identity = chain[i];
    identity.tokens[0] += change;
    identity.parent = i == 0 ? identity.root : branch[i - 1].key.node;
    identity.key.node = ChildId(identity.parent, identity.tokens);
    branch.push_back(identity);
  }
  return branch;
}

class SessionRemovalTest : public testing::Test {
 protected:
  SessionRemovalTest() { EXPECT_TRUE(h_.Open().ok()); }

  void Come(const std::string& session, const Chains& chain) {
    h_.store->Keep(RecordOf(session, chain), {});
    h_.StoreAll(chain);
  }
  absl::StatusOr<Removed> Remove(const std::string& session) {
    h_.store.reset();
    auto cleaner = DirectoryCleaner::Open(&h_.env, "/cache");
    EXPECT_TRUE(cleaner.ok()) << cleaner.status();
    return cleaner->RemoveSession(cache::SessionIdOf(session));
  }
  bool Exists(const BlockIdentity& identity) const {
    return h_.env.Exists(h_.PathOf(identity));
  }
  StoreHarness h_;
  const Chains chain_ = Chain(1, 56, TestFingerprint());
};

TEST_F(SessionRemovalTest, EverythingOfASessionGoesAndStaysGone) {
  Come("s", chain_);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(removed->files, 5u);
  EXPECT_TRUE(removed->failure.ok());
  h_.env.Restart(SimDisk::Unsynced::kDropped);
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_TRUE(h_.entries.empty());
  EXPECT_TRUE(h_.sessions.empty());
}

TEST_F(SessionRemovalTest, AllItsDirectionsGo) {
  const Chains branch = Branch(chain_, 2, 5);
  const Chains apart = Chain(9, 20, TestFingerprint());
  Come("s", chain_);
  Come("s", branch);
  Come("s", apart);
  ASSERT_TRUE(Remove("s").ok());
  for (const Chains& chain : {chain_, branch, apart}) {
    for (const BlockIdentity& identity : chain) {
      EXPECT_FALSE(Exists(identity));
    }
  }
}

TEST_F(SessionRemovalTest, WhatAnotherSessionCameToStays) {
  const Chains other = Branch(chain_, 2, 5);
  Come("s", chain_);
  Come("t", other);
  ASSERT_TRUE(Remove("s").ok());
  for (const BlockIdentity& identity : other) {
    EXPECT_TRUE(Exists(identity));
  }
  EXPECT_FALSE(Exists(chain_[2]));
  EXPECT_FALSE(Exists(chain_[3]));
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(RecordOf("t", other))));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(RecordOf("s", chain_))));
  ASSERT_TRUE(h_.Open().ok());
  EXPECT_EQ(h_.sessions.size(), 1u);
}

TEST_F(SessionRemovalTest, ASessionInsideAnotherTakesNothing) {
  Come("s", {chain_.begin(), chain_.begin() + 2});
  Come("t", chain_);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(removed->files, 1u);
  for (const BlockIdentity& identity : chain_) {
    EXPECT_TRUE(Exists(identity));
  }
}

TEST_F(SessionRemovalTest, WhatALongerConversationBeginsWithStays) {
  Come("s", {chain_.begin(), chain_.begin() + 3});
  const Chains anonymous = Branch(chain_, 1, 7);
  h_.StoreAll(anonymous);
  ASSERT_TRUE(Remove("s").ok());
  for (const BlockIdentity& identity : anonymous) {
    EXPECT_TRUE(Exists(identity));
  }
  EXPECT_FALSE(Exists(chain_[1]));
  EXPECT_FALSE(Exists(chain_[2]));
}

TEST_F(SessionRemovalTest, WhereTheEndWasEvictedTheRestGoesToo) {
  Come("s", chain_);
  ASSERT_TRUE(h_.env.Unlink(h_.PathOf(chain_[3])).ok());
  ASSERT_TRUE(Remove("s").ok());
  for (const BlockIdentity& identity : chain_) {
    EXPECT_FALSE(Exists(identity));
  }
}

TEST_F(SessionRemovalTest, AShorterTailThatWasReplacedGoesToo) {
  // As a stop leaves it, after the longer one is durable.
  BlockIdentity tail = chain_[3];
  tail.tokens.resize(3);
  tail.key.node = ChildId(tail.parent, tail.tokens);
  h_.StoreAll({tail});
  Come("s", chain_);
  ASSERT_TRUE(Remove("s").ok());
  EXPECT_FALSE(Exists(tail));
}

TEST_F(SessionRemovalTest, StatesGoWithTheSpansThatTheyAreIn) {
  const Chains other = Branch(chain_, 2, 5);
  Come("s", chain_);
  Come("t", other);
  const BlockIdentity shared = StateIn(chain_[1], 7);
  const BlockIdentity mine = StateIn(chain_[2], 3);
  const BlockIdentity at_end = StateIn(chain_[2], 16);
  const BlockIdentity others = StateIn(other[2], 9);
  h_.StoreAll({shared, mine, at_end, others});
  ASSERT_TRUE(Remove("s").ok());
  EXPECT_TRUE(Exists(shared));
  EXPECT_TRUE(Exists(others));
  EXPECT_FALSE(Exists(mine));
  EXPECT_FALSE(Exists(at_end));
}

TEST_F(SessionRemovalTest, AModelWithoutBlocksHasStatesThatGo) {
  h_.store->Keep(RecordOf("s", chain_), {});
  const Chains states = {StateIn(chain_[0], 16), StateIn(chain_[1], 5),
                         StateIn(chain_[2], 16), StateIn(chain_[3], 4)};
  h_.StoreAll(states);
  ASSERT_TRUE(Remove("s").ok());
  for (const BlockIdentity& state : states) {
    EXPECT_FALSE(Exists(state)) << state.start;
  }
}

TEST_F(SessionRemovalTest, EveryGroupAndEveryModelIsMeant) {
  Chains both = chain_;
  const Chains second = Chain(1, 56, TestFingerprint(), 1);
  both.insert(both.end(), second.begin(), second.end());
  Come("s", chain_);
  h_.StoreAll(both);
  h_.options.fingerprint = TestFingerprint(2);
  ASSERT_TRUE(h_.Open().ok());
  Come("s", Chain(1, 20, TestFingerprint(2)));
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(removed->files, 8u + 1u + 2u + 1u);
}

TEST_F(SessionRemovalTest, AClosedSessionIsFoundAsWell) {
  cache::SessionRecord closed = RecordOf("s", chain_);
  closed.closed = true;
  h_.StoreAll(chain_);
  h_.store->Keep(closed, {});
  h_.writers.RunAll();
  ASSERT_TRUE(Remove("s").ok());
  EXPECT_FALSE(Exists(chain_[0]));
}

TEST_F(SessionRemovalTest, WhatWasSetAsideOrLeftGoesToo) {
  Come("s", chain_);
  const std::string left = "/cache/" + TestFingerprint().hex() + "/tmp-7";
  h_.env.Put(left, SimDisk::Bytes(5000));
  h_.env.Put("/cache/damaged", {}, FileKind::kDirectory);
  h_.env.Put("/cache/damaged/x.kv.1.0", SimDisk::Bytes(5000));
  ASSERT_TRUE(Remove("s").ok());
  EXPECT_FALSE(h_.env.Exists(left));
  EXPECT_FALSE(h_.env.Exists("/cache/damaged/x.kv.1.0"));
}

TEST_F(SessionRemovalTest, AnUnknownSessionIsSaid) {
  Come("s", chain_);
  EXPECT_TRUE(absl::IsNotFound(Remove("S").status()));
  EXPECT_TRUE(Exists(chain_[0]));
}

TEST_F(SessionRemovalTest, WithABlockLeftTheRecordStaysForTheNextTry) {
  Come("s", chain_);
  h_.env.FailCall(SimDisk::Op::kUnlink, 2, absl::PermissionDeniedError("no"));
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(removed->failed, 1u);
  ASSERT_TRUE(Remove("s").ok());
  for (const BlockIdentity& identity : chain_) {
    EXPECT_FALSE(Exists(identity));
  }
}

TEST_F(SessionRemovalTest, DamagedBlocksGoByTheirNames) {
  const Chains other = Branch(chain_, 2, 5);
  Come("s", chain_);
  Come("t", other);
  for (const BlockIdentity& identity : {chain_[1], chain_[3], other[3]}) {
    h_.env.FlipBit(h_.PathOf(identity), 100, 2);
  }
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_TRUE(removed->failure.ok()) << removed->failure;
  EXPECT_FALSE(Exists(chain_[2]));
  EXPECT_FALSE(Exists(chain_[3]));
  // Damaged or not, these are the other one's too.
  EXPECT_TRUE(Exists(chain_[1]));
  EXPECT_TRUE(Exists(other[3]));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(RecordOf("s", chain_))));
}

TEST_F(SessionRemovalTest, BlocksOnThePathThatCannotBeReadGoAllTheSame) {
  Come("s", chain_);
  h_.store.reset();
  // The record, and then the headers.
  h_.env.FailCall(SimDisk::Op::kRead, 2, absl::UnavailableError("io"), 100);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_TRUE(removed->failure.ok()) << removed->failure;
  for (const BlockIdentity& identity : chain_) {
    EXPECT_FALSE(Exists(identity));
  }
}

TEST_F(SessionRemovalTest, DamagedBlocksThatNobodyCanTellGoToo) {
  BlockIdentity tail = chain_[3];
  tail.tokens.resize(3);
  tail.key.node = ChildId(tail.parent, tail.tokens);
  h_.StoreAll({tail});
  Come("s", chain_);
  h_.env.FlipBit(h_.PathOf(tail), 100, 2);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_TRUE(removed->failure.ok()) << removed->failure;
  EXPECT_FALSE(Exists(tail));
}

TEST_F(SessionRemovalTest, BeginningsOfADamagedBlockGoWithIt) {
  BlockIdentity tail = chain_[3];
  tail.tokens.resize(3);
  tail.key.node = ChildId(tail.parent, tail.tokens);
  const BlockIdentity state = StateIn(chain_[3], 2);
  const Chains other = Branch(chain_, 3, 5);
  h_.StoreAll({tail, state});
  Come("s", chain_);
  Come("t", other);
  h_.env.FlipBit(h_.PathOf(chain_[3]), 100, 2);
  ASSERT_TRUE(Remove("s").ok());
  EXPECT_FALSE(Exists(chain_[3]));
  EXPECT_FALSE(Exists(tail));
  EXPECT_FALSE(Exists(state));
  EXPECT_TRUE(Exists(other[3]));
}

TEST_F(SessionRemovalTest, WhatCannotBeReadKeepsTheRecordForAnotherTry) {
  BlockIdentity tail = chain_[3];
  tail.tokens.resize(3);
  tail.key.node = ChildId(tail.parent, tail.tokens);
  h_.StoreAll({tail});
  Come("s", chain_);
  h_.store.reset();
  // The record's, and then all headers', of which one is the tail's.
  h_.env.FailCall(SimDisk::Op::kRead, 2, absl::UnavailableError("io"), 100);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok());
  EXPECT_NE(removed->failure.message().find(h_.PathOf(tail)), std::string::npos)
      << removed->failure;
  EXPECT_TRUE(h_.env.Exists(h_.PathOf(RecordOf("s", chain_))));
  h_.env.ClearFaults();
  const auto again = Remove("s");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->failure.ok()) << again->failure;
  EXPECT_FALSE(Exists(tail));
  EXPECT_FALSE(Exists(chain_[0]));
  EXPECT_FALSE(h_.env.Exists(h_.PathOf(RecordOf("s", chain_))));
}

TEST_F(SessionRemovalTest, ARecordThatCannotBeReadIsNoUnknownSession) {
  Come("s", chain_);
  h_.store.reset();
  h_.env.FailCall(SimDisk::Op::kRead, 1, absl::UnavailableError("io"), 100);
  const auto removed = Remove("s");
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_NE(removed->failure.message().find(".session"), std::string::npos)
      << removed->failure;
  EXPECT_TRUE(Exists(chain_[0]));
}

TEST_F(SessionRemovalTest, ADirectoryThatCannotBeListedIsAFailure) {
  // For leftovers the cache, the model, the cache; then the cache again, and of
  // the model records and blocks.
  for (int nth = 1; nth <= 6; ++nth) {
    StoreHarness h;
    ASSERT_TRUE(h.Open().ok());
    h.store->Keep(RecordOf("s", chain_), {});
    h.StoreAll(chain_);
    h.store.reset();
    auto cleaner = DirectoryCleaner::Open(&h.env, "/cache");
    ASSERT_TRUE(cleaner.ok());
    h.env.FailCall(SimDisk::Op::kList, nth, absl::UnavailableError("io"));
    const auto removed = cleaner->RemoveSession(cache::SessionIdOf("s"));
    ASSERT_TRUE(removed.ok()) << nth << removed.status();
    EXPECT_FALSE(removed->failure.ok()) << nth;
  }
}

TEST_F(SessionRemovalTest, AStopAtAnyCallCanBeFinished) {
  bool stopped = true;
  for (int call = 1; stopped; ++call) {
    ASSERT_LT(call, 200);
    StoreHarness h;
    ASSERT_TRUE(h.Open().ok());
    h.store->Keep(RecordOf("s", chain_), {});
    h.StoreAll(chain_);
    h.store.reset();
    h.env.CrashAtCall(call);
    if (auto cleaner = DirectoryCleaner::Open(&h.env, "/cache"); cleaner.ok()) {
      cleaner->RemoveSession(cache::SessionIdOf("s")).IgnoreError();
    }
    stopped = h.env.crashed();
    h.env.Restart(SimDisk::Unsynced::kReordered, static_cast<uint64_t>(call));
    // Blocks that are left are still the session's.
    auto cleaner = DirectoryCleaner::Open(&h.env, "/cache");
    ASSERT_TRUE(cleaner.ok());
    cleaner->RemoveSession(cache::SessionIdOf("s")).IgnoreError();
    for (const BlockIdentity& identity : chain_) {
      EXPECT_FALSE(h.env.Exists(h.PathOf(identity))) << call;
    }
  }
}

}  // namespace
}  // namespace everwarm::store
