#include "store/maintenance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using Damages = std::vector<std::pair<std::string, absl::Status>>;

class MaintenanceTest : public testing::Test {
 protected:
  MaintenanceTest() {
    EXPECT_TRUE(h_.Open().ok());
    chain_ = Chain(1, 40, TestFingerprint(1));
    h_.StoreAll(chain_);
  }

  VerifyReport Verify(Damages* damages = nullptr) {
    uint64_t steps = 0;
    const auto report = VerifyDirectory(
        h_.env, "/cache",
        [&](const std::string& path, const absl::Status& why) {
          if (damages != nullptr) {
            damages->emplace_back(path, why);
          }
        },
        [&](uint64_t done, uint64_t all) {
          EXPECT_EQ(done, ++steps);
          EXPECT_LE(done, all);
        });
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(VerifyReport());
  }
  // A second model in the same directory, in the same server or another.
  std::vector<cache::BlockIdentity> StoreOther() {
    h_.options.fingerprint = TestFingerprint(2);
    EXPECT_TRUE(h_.Open().ok());
    const auto chain = Chain(1, 20, TestFingerprint(2));
    h_.StoreAll(chain);
    return chain;
  }
  DirectoryCleaner Close() {
    h_.store.reset();
    auto cleaner = DirectoryCleaner::Open(&h_.env, "/cache");
    EXPECT_TRUE(cleaner.ok()) << cleaner.status();
    return *std::move(cleaner);
  }
  size_t Blocks() const {
    size_t blocks = 0;
    for (const std::string& path : h_.env.Paths()) {
      blocks += path.ends_with(".kv") ? 1 : 0;
    }
    return blocks;
  }
  std::string PathOf(const cache::BlockIdentity& identity,
                     uint8_t fingerprint = 1) const {
    return "/cache/" + TestFingerprint(fingerprint).hex() + "/" +
           BlockFileName(identity.key);
  }

  StoreHarness h_;
  std::vector<cache::BlockIdentity> chain_;
};

TEST_F(MaintenanceTest, WholeFilesVerifyBesideARunningServer) {
  Damages damages;
  const VerifyReport report = Verify(&damages);
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_GT(report.bytes, 0u);
  EXPECT_TRUE(damages.empty());
}

TEST_F(MaintenanceTest, EveryDamageIsReportedWithItsFile) {
  StoreOther();
  const auto flip = [&](const std::string& path, size_t at) {
    auto bytes = h_.env.Contents(path);
    bytes[at] ^= std::byte{4};
    h_.env.Put(path, bytes);
  };
  // In a payload, in a header, cut short, and under another block's name.
  flip(PathOf(chain_[0]), kHeaderBytes + 17);
  flip(PathOf(chain_[1]), 100);
  auto cut = h_.env.Contents(PathOf(chain_[2]));
  cut.resize(cut.size() - 1);
  h_.env.Put(PathOf(chain_[2]), cut);
  const auto other = Chain(1, 20, TestFingerprint(2));
  h_.env.Put(PathOf(other[0], 2), h_.env.Contents(PathOf(other[1], 2)));
  const auto paths = h_.env.Paths();
  Damages damages;
  const VerifyReport report = Verify(&damages);
  EXPECT_EQ(report.files, 5u);
  EXPECT_EQ(report.damaged, 4u);
  std::vector<std::string> named;
  for (const auto& [path, why] : damages) {
    EXPECT_TRUE(absl::IsDataLoss(why)) << why;
    named.push_back(path);
  }
  std::sort(named.begin(), named.end());
  std::vector<std::string> wanted = {PathOf(chain_[0]), PathOf(chain_[1]),
                                     PathOf(chain_[2]), PathOf(other[0], 2)};
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(named, wanted);
  EXPECT_EQ(h_.env.Paths(), paths);
}

TEST_F(MaintenanceTest, AWholeBlockOfAnotherModelIsDamageToo) {
  const auto other = StoreOther();
  h_.env.Put(PathOf(other[0], 1), h_.env.Contents(PathOf(other[0], 2)));
  Damages damages;
  EXPECT_EQ(Verify(&damages).damaged, 1u);
  EXPECT_EQ(damages[0].first, PathOf(other[0], 1));
}

TEST_F(MaintenanceTest, WhatCannotBeReadIsDamage) {
  h_.env.FailCall(SimDisk::Op::kRead, 1, absl::UnavailableError("io"), 100);
  EXPECT_EQ(Verify().damaged, 3u);
}

TEST_F(MaintenanceTest, NoDirectoryIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(
      VerifyDirectory(
          h_.env, "/none", [](const std::string&, const absl::Status&) {},
          [](uint64_t, uint64_t) {})
          .status()));
  EXPECT_TRUE(
      absl::IsNotFound(DirectoryCleaner::Open(&h_.env, "/none").status()));
}

TEST_F(MaintenanceTest, ADirectoryInUseOrOfSomebodyElseIsNotTouched) {
  EXPECT_TRUE(absl::IsFailedPrecondition(
      DirectoryCleaner::Open(&h_.env, "/cache").status()));
  ASSERT_TRUE(h_.env.MakeDir("/home").ok());
  EXPECT_TRUE(
      absl::IsNotFound(DirectoryCleaner::Open(&h_.env, "/home").status()));
  EXPECT_FALSE(h_.env.Exists("/home/lock"));
}

TEST_F(MaintenanceTest, WhatCannotBeALockIsNotTakenForAServer) {
  ASSERT_TRUE(h_.env.MakeDir("/other").ok());
  h_.env.Put("/other/lock", {}, FileKind::kOther);
  const absl::Status status =
      DirectoryCleaner::Open(&h_.env, "/other").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "cannot be locked"))
      << status;
}

TEST_F(MaintenanceTest, LeftoversGoAndBlocksStay) {
  const std::string dir = "/cache/" + TestFingerprint(1).hex();
  h_.env.Put(dir + "/tmp-7", SimDisk::Bytes(5000));
  h_.env.Put("/cache/tmp-weights", SimDisk::Bytes(10));
  ASSERT_TRUE(h_.env.MakeDir("/cache/damaged").ok());
  h_.env.Put("/cache/damaged/x.kv.1.2", SimDisk::Bytes(10));
  h_.env.Put("/cache/mine.txt", SimDisk::Bytes(10));
  const Removed removed = Close().RemoveLeftovers();
  EXPECT_EQ(removed.files, 3u);
  EXPECT_EQ(removed.bytes, 8192u + 4096u + 4096u);
  EXPECT_EQ(removed.failed, 0u);
  EXPECT_EQ(Blocks(), 3u);
  EXPECT_TRUE(h_.env.Exists("/cache/mine.txt"));
  h_.env.Restart(SimDisk::Unsynced::kDropped);
  EXPECT_FALSE(h_.env.Exists(dir + "/tmp-7"));
  EXPECT_FALSE(h_.env.Exists("/cache/damaged/x.kv.1.2"));
}

TEST_F(MaintenanceTest, OtherModelsGoOnRequest) {
  StoreOther();
  EXPECT_EQ(Close().RemoveOtherModels({TestFingerprint(1)}).files, 2u);
  EXPECT_EQ(Blocks(), 3u);
  EXPECT_TRUE(h_.env.Exists(PathOf(chain_[0])));
}

TEST_F(MaintenanceTest, OldBlocksGoButNotUnderWhatIsUsed) {
  h_.clock.Advance(std::chrono::hours(24));
  // Goes on from the first block of the old chain.
  cache::BlockIdentity branch = chain_[1];
  branch.tokens[0] += 1;
  branch.key.node = ChildId(branch.parent, branch.tokens);
  h_.StoreAll({branch});
  h_.env.SetTime(PathOf(chain_[0]), Clock::Wall());
  const Removed removed =
      Close().RemoveUnusedSince(h_.clock.WallNow() - std::chrono::hours(12));
  EXPECT_EQ(removed.files, 2u);
  EXPECT_TRUE(h_.env.Exists(PathOf(chain_[0])));
  EXPECT_FALSE(h_.env.Exists(PathOf(chain_[1])));
  EXPECT_FALSE(h_.env.Exists(PathOf(chain_[2])));
  EXPECT_TRUE(h_.env.Exists(PathOf(branch)));
}

TEST_F(MaintenanceTest, RemovingAllLeavesNothingOfACache) {
  StoreOther();
  h_.env.Put("/cache/weights.memo", SimDisk::Bytes(10));
  h_.env.Put("/cache/mine.txt", SimDisk::Bytes(10));
  h_.env.Put("/cache/" + TestFingerprint(1).hex() + "/odd", SimDisk::Bytes(10));
  EXPECT_EQ(Close().RemoveAll().files, 7u);
  h_.env.Restart(SimDisk::Unsynced::kDropped);
  for (const std::string& path : h_.env.Paths()) {
    const auto info = h_.env.Stat(path);
    EXPECT_TRUE(info->kind == FileKind::kDirectory || path == "/cache/lock" ||
                path == "/cache/mine.txt")
        << path;
  }
}

TEST_F(MaintenanceTest, WhatCannotBeRemovedIsSaid) {
  h_.env.FailCall(SimDisk::Op::kUnlink, 2, absl::PermissionDeniedError("no"));
  const Removed removed = Close().RemoveAll();
  EXPECT_EQ(removed.files, 2u);
  EXPECT_EQ(removed.failed, 1u);
  EXPECT_FALSE(removed.failure.ok());
}

TEST_F(MaintenanceTest, ADirectoryThatCannotBeListedIsNotCalledWhole) {
  // The first is the cache's, the others are the model's.
  h_.env.FailCall(SimDisk::Op::kList, 2, absl::UnavailableError("io"), 100);
  Damages damages;
  const VerifyReport report = Verify(&damages);
  EXPECT_EQ(report.files, 0u);
  EXPECT_EQ(report.damaged, 1u);
  ASSERT_EQ(damages.size(), 1u);
  EXPECT_EQ(damages[0].first, "/cache/" + TestFingerprint(1).hex());
}

TEST_F(MaintenanceTest, NothingIsCalledRemovedThatCouldNotBeListed) {
  for (int nth = 1; nth <= 5; ++nth) {
    DirectoryCleaner cleaner = Close();
    h_.env.FailCall(SimDisk::Op::kList, nth, absl::UnavailableError("io"));
    EXPECT_FALSE(cleaner.RemoveAll().failure.ok()) << nth;
    h_.env.ClearFaults();
  }
}

TEST_F(MaintenanceTest, NothingIsCalledUnusedThatCouldNotBeListedOrRead) {
  const Clock::Wall later = h_.clock.WallNow() + std::chrono::hours(24);
  DirectoryCleaner cleaner = Close();
  for (int nth = 1; nth <= 3; ++nth) {
    h_.env.FailCall(SimDisk::Op::kList, nth, absl::UnavailableError("io"));
    const Removed removed = cleaner.RemoveUnusedSince(later);
    EXPECT_EQ(removed.files, 0u) << nth;
    EXPECT_FALSE(removed.failure.ok()) << nth;
    h_.env.ClearFaults();
  }
  // Not even its time is known: it may have been used just now.
  h_.env.FailCall(SimDisk::Op::kOpen, 1, absl::UnavailableError("io"), 100);
  const Removed removed =
      cleaner.RemoveUnusedSince(Clock::Wall() + std::chrono::hours(1));
  EXPECT_EQ(removed.files, 0u);
  EXPECT_FALSE(removed.failure.ok());
  EXPECT_EQ(Blocks(), 3u);
}

TEST_F(MaintenanceTest, WhatIsNoDirectoryIsNamedAndNotLookedInto) {
  Fingerprint linked;
  linked.digest.fill(9);
  const std::string path = "/cache/" + linked.hex();
  h_.env.Put(path, {}, FileKind::kOther);
  Damages damages;
  EXPECT_EQ(Verify(&damages).damaged, 1u);
  ASSERT_EQ(damages.size(), 1u);
  EXPECT_EQ(damages[0].first, path);
  DirectoryCleaner cleaner = Close();
  for (const Removed& removed :
       {cleaner.RemoveLeftovers(), cleaner.RemoveAll()}) {
    EXPECT_NE(removed.failure.message().find(path), std::string::npos)
        << removed.failure;
  }
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_TRUE(h_.env.Exists(path));
}

TEST_F(MaintenanceTest, ModelsAreNamedByTheirFirstDigits) {
  StoreOther();
  const std::string one = TestFingerprint(1).hex();
  EXPECT_EQ(*FindFingerprint(h_.env, "/cache", one.substr(0, 12)),
            TestFingerprint(1));
  // Both begin with a zero.
  for (const char* digits : {"0", "ff", ""}) {
    const auto found = FindFingerprint(h_.env, "/cache", digits);
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << digits;
    EXPECT_NE(found.status().message().find(one), std::string::npos);
  }
}

}  // namespace
}  // namespace everwarm::store
