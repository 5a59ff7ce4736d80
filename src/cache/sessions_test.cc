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
  options.ram_target_bytes = 10 * layout.groups[0].geometry.slot_bytes();
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
            10 * FullOnly().groups[0].geometry.slot_bytes());
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
  sessions.Advance("a", node(100));
  sessions.Advance("b", node(200));
  sessions.Advance("a", node(100));
  sessions.Advance("c", node(300));
  EXPECT_EQ(sessions.size(), 2u);
  EXPECT_FALSE(sessions.Close("b"));
  EXPECT_TRUE(sessions.Close("a"));
  EXPECT_TRUE(sessions.Close("c"));
  // Nothing keeps a node any more.
  EXPECT_EQ(tree.num_nodes(), 0u);
}

}  // namespace
}  // namespace everwarm::cache
