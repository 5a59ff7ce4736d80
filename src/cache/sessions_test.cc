// What a session would go on from stays in RAM longer than what is nobody's.
#include "cache/sessions.h"

#include "absl/strings/str_cat.h"
#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

// As much as ten blocks of 16 tokens.
HarnessOptions TenBlocks(const CacheLayout& layout) {
  HarnessOptions options;
  options.ram_target_bytes = 10 * layout.groups[0].geometry.rest.slot_bytes();
  options.ram_hard_cap_bytes = 4 * options.ram_target_bytes;
  return options;
}

class SessionsTest : public testing::Test {
 protected:
  // A turn of the session: everything of the prompt is computed.
  void Turn(const Tokens& prompt, const std::string& session) {
    auto sequence = h_.TakeReady(prompt);
    h_.cache().SetSession(*sequence, session);
    ASSERT_TRUE(h_.Compute(*sequence, Rest(prompt, sequence->length())).ok());
    h_.cache().Publish(*sequence);
    sequence.reset();
    h_.StoreAll();
    h_.cache().Poll();
  }
  // Tokens of it that are in RAM.
  TokenPos InRam(const Tokens& tokens) {
    // One more, because something is always left to compute.
    return h_.TakeReady(tokens + Range(9000, 1))->reuse().ram;
  }
  static Tokens Rest(const Tokens& all, size_t from) {
    return Tokens(all.begin() + static_cast<std::ptrdiff_t>(from), all.end());
  }
  CacheHarness h_{FullOnly(), TenBlocks(FullOnly())};
};

TEST_F(SessionsTest, AStateOfASessionStaysLongerThanYoungerOnesOfNone) {
  Turn(Range(1, 64), "s");
  for (TokenId other = 1; other < 6; ++other) {
    Turn(Range(other * 1000, 64), "");
  }
  EXPECT_EQ(h_.cache().stats().sessions, 1u);
  EXPECT_EQ(InRam(Range(1, 64)), 64u);
}

TEST_F(SessionsTest, WithoutASessionTheOldestGoes) {
  Turn(Range(1, 64), "");
  for (TokenId other = 1; other < 6; ++other) {
    Turn(Range(other * 1000, 64), "");
  }
  EXPECT_EQ(InRam(Range(1, 64)), 0u);
}

TEST_F(SessionsTest, AClosedSessionKeepsNothingAndDeletesNothing) {
  Turn(Range(1, 64), "s");
  EXPECT_TRUE(h_.cache().CloseSession("s"));
  EXPECT_FALSE(h_.cache().CloseSession("s"));
  EXPECT_EQ(h_.cache().stats().sessions, 0u);
  EXPECT_EQ(InRam(Range(1, 64)), 64u);
  for (TokenId other = 1; other < 6; ++other) {
    Turn(Range(other * 1000, 64), "");
  }
  EXPECT_EQ(InRam(Range(1, 64)), 0u);
  // It is still on the disk.
  EXPECT_EQ(h_.TakeReady(Range(1, 64) + Range(9000, 1))->length(), 64u);
}

TEST_F(SessionsTest, ItIsAPreferenceAndNoPin) {
  for (TokenId session = 1; session < 6; ++session) {
    Turn(Range(session * 1000, 64), absl::StrCat("s", session));
  }
  EXPECT_LE(h_.pool().used_bytes(),
            10 * FullOnly().groups[0].geometry.rest.slot_bytes());
  EXPECT_EQ(InRam(Range(1000, 64)), 0u);
  EXPECT_EQ(InRam(Range(5000, 64)), 64u);
}

TEST_F(SessionsTest, ARequestAsideDoesNotDriveOutTheConversation) {
  Turn(Range(1, 48), "s");
  // The same session, but another beginning.
  Turn(Range(500, 32), "s");
  for (TokenId other = 1; other < 6; ++other) {
    Turn(Range(other * 1000, 48), "");
  }
  EXPECT_EQ(InRam(Range(1, 48)), 48u);
  EXPECT_EQ(InRam(Range(500, 32)), 32u);
}

TEST_F(SessionsTest, OnlyTheNewestTurnIsPreferred) {
  Turn(Range(1, 40), "s");
  // An edit: the first turn's end is not what the session goes on from, and
  // after four more it is forgotten.
  for (TokenId edit = 1; edit <= 4; ++edit) {
    Turn(First(Range(1, 40), 16) + Range(edit * 1000, 16), "s");
  }
  EXPECT_EQ(h_.cache().stats().sessions, 1u);
  for (TokenId other = 10; other < 16; ++other) {
    Turn(Range(other * 1000, 48), "");
  }
  EXPECT_EQ(InRam(Range(1, 40)), 16u);
  EXPECT_EQ(InRam(First(Range(1, 40), 16) + Range(4000, 16)), 32u);
}

TEST_F(SessionsTest, GoingOnMovesTheSessionToTheLongerState) {
  Turn(Range(1, 20), "s");
  Turn(Range(1, 50), "s");
  Turn(Range(1, 70), "s");
  EXPECT_TRUE(h_.cache().CloseSession("s"));
  for (TokenId other = 1; other < 6; ++other) {
    Turn(Range(other * 1000, 64), "");
  }
  // Nothing of its older states was left behind.
  EXPECT_EQ(InRam(Range(1, 70)), 0u);
}

TEST_F(SessionsTest, TheLeastRecentlyUsedSessionIsForgotten) {
  TokenTree tree(16, 1);
  Sessions sessions(tree, 2);
  Node* const root = tree.FindOrAddRoot(NodeId{});
  const auto node = [&](TokenId first) {
    return tree.FindOrAdd(root, Range(first, 16));
  };
  sessions.Advance(SessionIdOf("a"), node(100), 16);
  sessions.Advance(SessionIdOf("b"), node(200), 16);
  sessions.Advance(SessionIdOf("a"), node(100), 16);
  sessions.Advance(SessionIdOf("c"), node(300), 16);
  EXPECT_EQ(sessions.size(), 2u);
  EXPECT_FALSE(sessions.Close(SessionIdOf("b")));
  EXPECT_TRUE(sessions.Close(SessionIdOf("a")));
  EXPECT_TRUE(sessions.Close(SessionIdOf("c")));
  // Nothing keeps a node any more.
  EXPECT_EQ(tree.num_nodes(), 0u);
}

// What a disk would have of the records.
class FakeKeeper final : public SessionKeeper {
 public:
  void Keep(SessionRecord record, std::vector<RecordId> replaces) override {
    for (const RecordId& id : replaces) {
      EXPECT_NE(id, record.id()) << "a record that replaces itself";
      std::erase_if(entries_, [&](const SessionEntry& entry) {
        return entry.record.id() == id;
      });
    }
    std::erase_if(entries_, [&](const SessionEntry& entry) {
      return entry.record.id() == record.id();
    });
    now_ += std::chrono::seconds(1);
    entries_.push_back({std::move(record), now_});
  }
  std::vector<SessionEntry>& entries() { return entries_; }

 private:
  Clock::Wall now_;
  std::vector<SessionEntry> entries_;
};

class KeptSessionsTest : public SessionsTest {
 protected:
  KeptSessionsTest() { h_.cache().KeepSessions(&keeper_, {}); }
  void Restart() {
    h_.Restart();
    h_.cache().KeepSessions(&keeper_, keeper_.entries());
  }
  void OthersCome() {
    for (TokenId other = 11; other < 16; ++other) {
      Turn(Range(other * 1000, 64), "");
    }
  }
  NodeId IdOf(const Tokens& tokens) const {
    NodeId id = h_.Root("");
    for (size_t start = 0; start < tokens.size(); start += 16) {
      id = ChildId(id, First(Rest(tokens, start),
                             std::min<size_t>(16, tokens.size() - start)));
    }
    return id;
  }
  FakeKeeper keeper_;
};

TEST_F(KeptSessionsTest, ARestartPrefersWhatASessionCameTo) {
  Turn(Range(1, 64), "s");
  Restart();
  EXPECT_EQ(h_.cache().stats().sessions, 1u);
  // Read back into RAM by somebody else.
  EXPECT_EQ(h_.TakeReady(Range(1, 64) + Range(9000, 1))->length(), 64u);
  OthersCome();
  EXPECT_EQ(InRam(Range(1, 64)), 64u);
}

TEST_F(KeptSessionsTest, ARecordNamesEveryNodeToTheEnd) {
  Turn(Range(1, 40), "s");
  ASSERT_EQ(keeper_.entries().size(), 1u);
  const SessionRecord& record = keeper_.entries()[0].record;
  EXPECT_EQ(record.session, SessionIdOf("s"));
  EXPECT_EQ(record.root, h_.Root(""));
  EXPECT_EQ(record.path,
            std::vector<NodeId>(
                {IdOf(Range(1, 16)), IdOf(Range(1, 32)), IdOf(Range(1, 40))}));
}

TEST_F(KeptSessionsTest, GoingOnReplacesTheRecordAlsoAfterARestart) {
  Turn(Range(1, 40), "s");
  Turn(Range(1, 50), "s");
  Restart();
  Turn(Range(1, 70), "s");
  ASSERT_EQ(keeper_.entries().size(), 1u);
  EXPECT_EQ(keeper_.entries()[0].record.path.back(), IdOf(Range(1, 70)));
}

TEST_F(KeptSessionsTest, ARecordThatCameBackGoesWithTheNext) {
  Turn(Range(1, 40), "s");
  const SessionEntry old = keeper_.entries()[0];
  Turn(Range(1, 50), "s");
  // The power went before it was gone for good.
  keeper_.entries().push_back(old);
  Restart();
  Turn(Range(1, 60), "s");
  EXPECT_EQ(keeper_.entries().size(), 1u);
}

TEST_F(KeptSessionsTest, WhatOthersAddBehindItIsNotTheSessions) {
  Turn(Range(1, 20), "s");
  Turn(Range(1, 30), "");
  Turn(Range(1, 20), "s");
  ASSERT_EQ(keeper_.entries().size(), 1u);
  EXPECT_EQ(keeper_.entries()[0].record.path.back(), IdOf(Range(1, 20)));
}

TEST_F(KeptSessionsTest, DirectionsThatRamForgetsKeepTheirRecords) {
  for (TokenId edit = 1; edit <= 6; ++edit) {
    Turn(Range(edit * 1000, 20), "s");
  }
  EXPECT_EQ(keeper_.entries().size(), 6u);
}

TEST_F(KeptSessionsTest, AClosedSessionStaysClosedAndIsStillKnown) {
  Turn(Range(1, 64), "s");
  EXPECT_TRUE(h_.cache().CloseSession("s"));
  ASSERT_EQ(keeper_.entries().size(), 1u);
  EXPECT_TRUE(keeper_.entries()[0].record.closed);
  Restart();
  EXPECT_EQ(h_.cache().stats().sessions, 0u);
  // It goes on, and is open again.
  Turn(Range(1, 70), "s");
  Restart();
  EXPECT_EQ(h_.cache().stats().sessions, 1u);
}

TEST_F(KeptSessionsTest, OlderDirectionsOfAClosedSessionAreClosedToo) {
  for (TokenId edit = 1; edit <= 6; ++edit) {
    Turn(Range(edit * 1000, 20), "s");
  }
  EXPECT_TRUE(h_.cache().CloseSession("s"));
  Restart();
  EXPECT_EQ(h_.cache().stats().sessions, 0u);
}

TEST_F(KeptSessionsTest, ARecordOfNothingThatIsThereIsIgnored) {
  Turn(Range(1, 64), "s");
  std::vector<SessionEntry> known = keeper_.entries();
  for (NodeId& id : known[0].record.path) {
    id.digest[0] ^= 1;
  }
  h_.Restart();
  h_.cache().KeepSessions(&keeper_, known);
  EXPECT_EQ(h_.cache().stats().sessions, 0u);
}

TEST_F(KeptSessionsTest, WhereTheEndIsGoneTheRestIsPreferred) {
  Turn(Range(1, 64), "s");
  std::vector<SessionEntry> known = keeper_.entries();
  known[0].record.path.back().digest[0] ^= 1;
  h_.Restart();
  h_.cache().KeepSessions(&keeper_, known);
  EXPECT_EQ(h_.TakeReady(Range(1, 64) + Range(9000, 1))->length(), 64u);
  OthersCome();
  EXPECT_EQ(InRam(Range(1, 64)), 48u);
}

TEST_F(KeptSessionsTest, TheNewestSessionsAreTakenOver) {
  TokenTree tree(16, 1);
  Sessions sessions(tree, 2);
  Node* const node = tree.FindOrAdd(tree.FindOrAddRoot(NodeId{}), Range(1, 16));
  std::vector<SessionEntry> known;
  for (const char* name : {"a", "b", "c"}) {
    SessionRecord record;
    record.session = SessionIdOf(name);
    record.path = {NodeId{}};
    known.push_back({record, Clock::Wall(std::chrono::seconds(name[0]))});
  }
  sessions.KeepIn(&keeper_, known, [&](const NodeId&) { return node; });
  EXPECT_EQ(sessions.size(), 2u);
  // And the older of them goes first.
  sessions.Advance(SessionIdOf("d"), node, 16);
  EXPECT_FALSE(sessions.Close(SessionIdOf("a")));
  EXPECT_FALSE(sessions.Close(SessionIdOf("b")));
  EXPECT_TRUE(sessions.Close(SessionIdOf("c")));
}

}  // namespace
}  // namespace everwarm::cache
