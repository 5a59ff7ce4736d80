#include "store/inspect.h"

#include <gtest/gtest.h>

#include "store/session_file.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

TEST(InspectTest, ListsModelsAndConversationsBesideARunningStore) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto first = Chain(1, 40, TestFingerprint(1));
  h.StoreAll(first);
  h.clock.Advance(std::chrono::seconds(10));
  h.StoreAll(Chain(2, 16, TestFingerprint(1)));
  h.options.fingerprint = TestFingerprint(2);
  ASSERT_TRUE(h.Open().ok());
  h.StoreAll(Chain(1, 20, TestFingerprint(2), 1));

  const auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->total_bytes, h.env.used_bytes());
  ASSERT_EQ(report->fingerprints.size(), 2u);
  const StoredFingerprint& one = report->fingerprints[0];
  EXPECT_EQ(one.fingerprint, TestFingerprint(1));
  EXPECT_EQ(one.entries, 4u);
  EXPECT_EQ(one.tokens, 56u);
  EXPECT_EQ(*one.newest_use - *one.oldest_use, std::chrono::seconds(10));
  ASSERT_EQ(one.groups.size(), 1u);
  EXPECT_EQ(one.groups[0].scheme, SmallGroups()[0].rest);
  ASSERT_EQ(one.conversations.size(), 2u);
  EXPECT_EQ(one.conversations[0].tokens, 16u);
  EXPECT_EQ(one.conversations[1].tokens, 40u);
  EXPECT_EQ(one.conversations[1].reachable_tokens, 40u);
  EXPECT_EQ(one.conversations[1].blocks, 3u);
  EXPECT_EQ(one.conversations[1].leaf, first[2].key.node);
  const StoredFingerprint& two = report->fingerprints[1];
  EXPECT_EQ(two.entries, 2u);
  ASSERT_EQ(two.groups.size(), 2u);
  EXPECT_EQ(two.groups[1].scheme.codec, "q8");
}

TEST(InspectTest, BothCodecsOfAGroupAreNamed) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  h.StoreAll(Chain(1, 40, TestFingerprint(1), kMixed));
  const auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->fingerprints[0].groups.size(), kMixed + 1u);
  const StoredGroup& group = report->fingerprints[0].groups[kMixed];
  EXPECT_EQ(group.scheme, SmallGroups()[kMixed].rest);
  EXPECT_EQ(group.first_codec, "f16");
  EXPECT_TRUE(report->fingerprints[0].groups[0].first_codec.empty());
}

TEST(InspectTest, SharedPrefixesCountOnceAndGapsAreSeen) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = Chain(1, 48, TestFingerprint(1));
  h.StoreAll(chain);
  // A second conversation that leaves the first after one block.
  cache::BlockIdentity branch = chain[1];
  branch.tokens[0] += 1;
  branch.key.node = ChildId(branch.parent, branch.tokens);
  h.StoreAll({branch});
  auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->fingerprints[0].tokens, 64u);
  EXPECT_EQ(report->fingerprints[0].conversations.size(), 2u);
  ASSERT_TRUE(h.env.Unlink(h.PathOf(chain[0])).ok());
  report = InspectDirectory(h.env, "/cache");
  for (const auto& conversation : report->fingerprints[0].conversations) {
    EXPECT_EQ(conversation.reachable_tokens, 0u);
  }
}

TEST(InspectTest, StatesSayHowFarAConversationIsInReach) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = Chain(1, 44, TestFingerprint(1));
  h.StoreAll(chain);
  h.StoreAll(
      {StateIn(chain[0], 16), StateIn(chain[1], 5), StateIn(chain[2], 12)});
  // Behind what is no beginning of this conversation.
  cache::BlockIdentity other = chain[1];
  other.tokens[3] += 1;
  h.StoreAll({StateIn(other, 7)});
  auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  const StoredFingerprint& model = report->fingerprints[0];
  EXPECT_EQ(model.entries, 7u);
  EXPECT_EQ(model.states, 4u);
  EXPECT_EQ(model.state_bytes, 4 * (4096u + 12288u));
  EXPECT_EQ(model.tokens, 44u);
  ASSERT_EQ(model.conversations.size(), 1u);
  EXPECT_EQ(model.conversations[0].tokens, 44u);
  EXPECT_EQ(model.conversations[0].reachable_tokens, 44u);
  EXPECT_EQ(model.conversations[0].blocks, 3u);
  EXPECT_EQ(model.conversations[0].states, 3u);
  ASSERT_TRUE(h.env.Unlink(h.PathOf(StateIn(chain[2], 12))).ok());
  report = InspectDirectory(h.env, "/cache");
  EXPECT_EQ(report->fingerprints[0].conversations[0].reachable_tokens, 21u);
}

TEST(InspectTest, SessionsAreListedWithAllTheirDirections) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto keep = [&](const char* session, uint32_t seed, TokenPos tokens,
                        bool closed) {
    const auto chain = Chain(seed, tokens, TestFingerprint());
    cache::SessionRecord record = RecordOf(session, chain);
    record.closed = closed;
    h.store->Keep(record, {});
    h.StoreAll(chain);
    h.clock.Advance(std::chrono::seconds(10));
    return record;
  };
  const auto first = keep("a", 1, 40, false);
  keep("b", 2, 16, true);
  keep("a", 3, 20, false);
  h.env.Put(
      "/cache/" + TestFingerprint().hex() + "/" +
          SessionFileName(RecordOf("c", Chain(4, 16, TestFingerprint())).id()),
      SimDisk::Bytes(4096));
  auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  const StoredFingerprint& model = report->fingerprints[0];
  EXPECT_EQ(model.damaged, 1u);
  ASSERT_EQ(model.sessions.size(), 2u);
  const StoredSession& a = model.sessions[0];
  EXPECT_EQ(a.id, cache::SessionIdOf("a"));
  EXPECT_EQ(a.conversations, 2u);
  EXPECT_EQ(a.tokens, 40u);
  EXPECT_FALSE(a.closed);
  const StoredSession& b = model.sessions[1];
  EXPECT_EQ(b.id, cache::SessionIdOf("b"));
  EXPECT_EQ(b.tokens, 16u);
  EXPECT_TRUE(b.closed);
  EXPECT_EQ(a.last_used - b.last_used, std::chrono::seconds(10));
  // Without its last block it is as long as what is left.
  ASSERT_TRUE(h.env.Unlink(h.PathOf(Chain(1, 40, TestFingerprint())[2])).ok());
  report = InspectDirectory(h.env, "/cache");
  EXPECT_EQ(report->fingerprints[0].sessions[0].tokens, 32u);
  EXPECT_EQ(report->fingerprints[0].sessions[0].id, first.session);
}

TEST(InspectTest, CountsDamageTempAndSetAsideFilesAndChangesNothing) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = Chain(1, 32, TestFingerprint(1));
  h.StoreAll(chain);
  h.env.Put(h.PathOf(chain[1]), SimDisk::Bytes(10));
  h.env.Put("/cache/" + TestFingerprint(1).hex() + "/tmp-3",
            SimDisk::Bytes(10));
  ASSERT_TRUE(h.env.MakeDir("/cache/damaged").ok());
  h.env.Put("/cache/damaged/x", SimDisk::Bytes(5000));
  const auto paths = h.env.Paths();
  const auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->fingerprints[0].entries, 1u);
  EXPECT_EQ(report->fingerprints[0].damaged, 1u);
  EXPECT_EQ(report->temp_files, 1u);
  EXPECT_EQ(report->set_aside_files, 1u);
  EXPECT_EQ(report->set_aside_bytes, 8192u);
  EXPECT_EQ(h.env.Paths(), paths);
}

TEST(InspectTest, AMissingDirectoryIsNotFound) {
  FakeClock clock;
  SimDisk env(&clock);
  EXPECT_TRUE(absl::IsNotFound(InspectDirectory(env, "/none").status()));
}

TEST(InspectTest, WhatCannotBeLookedIntoIsNamed) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  h.StoreAll(Chain(1, 20, TestFingerprint(1)));
  const std::string link = "/cache/" + TestFingerprint(9).hex();
  h.env.Put(link, {}, FileKind::kOther);
  // The first is the cache's.
  h.env.FailCall(SimDisk::Op::kList, 2, absl::UnavailableError("io"));
  const auto report = InspectDirectory(h.env, "/cache");
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->refused.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(report->refused[0]));
  EXPECT_NE(report->refused[1].message().find(link), std::string::npos);
}

TEST(InspectTest, VerifyReadsThePayloadToo) {
  StoreHarness h;
  ASSERT_TRUE(h.Open().ok());
  const auto chain = Chain(1, 20, TestFingerprint(1));
  h.StoreAll(chain);
  for (const auto& identity : chain) {
    const std::string path = h.PathOf(identity);
    const auto header = VerifyBlockFile(h.env, path);
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->identity.tokens, identity.tokens);
    auto bytes = h.env.Contents(path);
    bytes[kHeaderBytes + header->payload_bytes() - 1] ^= std::byte{1};
    h.env.Put(path, bytes);
    EXPECT_TRUE(absl::IsDataLoss(VerifyBlockFile(h.env, path).status()));
  }
}

}  // namespace
}  // namespace everwarm::store
