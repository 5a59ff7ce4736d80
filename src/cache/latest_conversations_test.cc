#include "cache/latest_conversations.h"

#include <chrono>

#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

// The entries of a path of 16 tokens a span, used at that time.
std::vector<TierEntry> Path(const Tokens& tokens, int seconds,
                            const std::string& name_space = "") {
  std::vector<TierEntry> entries;
  NodeId parent = RootId(Fingerprint{}, name_space);
  for (size_t at = 0; at < tokens.size(); at += 16) {
    TierEntry entry;
    entry.identity.root = RootId(Fingerprint{}, name_space);
    entry.identity.parent = parent;
    entry.identity.start = static_cast<TokenPos>(at);
    entry.identity.tokens.assign(
        tokens.begin() + static_cast<std::ptrdiff_t>(at),
        tokens.begin() +
            static_cast<std::ptrdiff_t>(std::min(at + 16, tokens.size())));
    parent = ChildId(parent, entry.identity.tokens);
    entry.identity.key.node = parent;
    entry.last_used = Clock::Wall(std::chrono::seconds(seconds));
    entries.push_back(entry);
  }
  return entries;
}

std::vector<TierEntry> All(const std::vector<std::vector<TierEntry>>& paths) {
  std::vector<TierEntry> all;
  for (const std::vector<TierEntry>& path : paths) {
    all.insert(all.end(), path.begin(), path.end());
  }
  return all;
}

TEST(LatestConversationsTest, TheMostRecentPathsToTheirEnds) {
  const auto latest = LatestConversations(
      All({Path(Range(1, 40), 5), Path(Range(100, 20), 9, "x"),
           Path(Range(200, 16), 7)}),
      2);
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[0].tokens, Range(200, 16));
  EXPECT_EQ(latest[0].root, RootId(Fingerprint{}, ""));
  EXPECT_EQ(latest[1].tokens, Range(100, 20));
  EXPECT_EQ(latest[1].root, RootId(Fingerprint{}, "x"));
}

TEST(LatestConversationsTest, AForkIsTwoConversations) {
  const Tokens shared = Range(1, 16);
  const auto latest = LatestConversations(
      All({Path(shared + Range(50, 5), 1), Path(shared + Range(70, 5), 2)}),
      10);
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[0].tokens, shared + Range(50, 5));
  EXPECT_EQ(latest[1].tokens, shared + Range(70, 5));
}

TEST(LatestConversationsTest, WhatOnlyBeginsATailIsNoConversation) {
  // A state inside of the tail, and one before it.
  auto entries = Path(Range(1, 30), 5);
  for (const TierEntry& entry :
       All({Path(Range(1, 20), 9), Path(Range(1, 7), 9)})) {
    entries.push_back(entry);
    entries.back().identity.key.group = 1;
  }
  const auto latest = LatestConversations(entries, 10);
  ASSERT_EQ(latest.size(), 1u);
  EXPECT_EQ(latest[0].tokens, Range(1, 30));
}

TEST(LatestConversationsTest, APathWithAGapIsLeftOut) {
  auto entries = Path(Range(1, 40), 5);
  entries.erase(entries.begin() + 1);
  // What is before the gap ends there.
  const auto latest = LatestConversations(entries, 10);
  ASSERT_EQ(latest.size(), 1u);
  EXPECT_EQ(latest[0].tokens, Range(1, 16));
  EXPECT_TRUE(LatestConversations({}, 10).empty());
}

}  // namespace
}  // namespace everwarm::cache
