#include "store/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/sha256.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using Op = SimDisk::Op;

FingerprintParts Parts() {
  FingerprintParts parts;
  parts.weights.fill(7);
  parts.groups = SmallGroups();
  parts.numerics_version = "1";
  return parts;
}

TEST(FingerprintTest, IsTheSameForTheSameParts) {
  EXPECT_EQ(ComputeFingerprint(Parts()), ComputeFingerprint(Parts()));
}

TEST(FingerprintTest, ChangesWithEverythingTheBytesDependOn) {
  const std::vector<std::function<void(FingerprintParts&)>> changes = {
      [](FingerprintParts& p) { p.weights[31] ^= 1; },
      [](FingerprintParts& p) { p.groups[0].rest.codec = "q8"; },
      [](FingerprintParts& p) { p.groups.pop_back(); },
      [](FingerprintParts& p) { std::swap(p.groups[0], p.groups[1]); },
      [](FingerprintParts& p) {
        p.groups[0].rest.geometry = BlockGeometry(3, 16, {{2, 64}, {2, 96}});
      },
      [](FingerprintParts& p) {
        p.groups[0].rest.geometry = BlockGeometry(2, 16, {{4, 32}, {2, 96}});
      },
      [](FingerprintParts& p) {
        p.groups[0].rest.geometry = BlockGeometry(2, 32, {{2, 64}, {2, 96}});
        p.groups[1].rest.geometry = BlockGeometry(1, 32, {{1, 32}});
      },
      [](FingerprintParts& p) { p.numerics_version = std::string("2"); },
      [](FingerprintParts& p) { p.groups[kMixed].first_spans = 0; },
      [](FingerprintParts& p) { p.groups[kMixed].first_spans = 2; },
      [](FingerprintParts& p) { p.groups[kMixed].first.codec = "q8"; },
      [](FingerprintParts& p) {
        p.groups[kMixed].first.geometry =
            BlockGeometry(2, 16, {{2, 208}, {2, 200}});
      },
      // The same two schemes, the other way round.
      [](FingerprintParts& p) {
        std::swap(p.groups[kMixed].first, p.groups[kMixed].rest);
      },
      // Text does not run from one field into the next.
      [](FingerprintParts& p) {
        p.groups[1].rest.codec = "q81";
        p.numerics_version = "";
      },
  };
  std::vector<std::string> seen = {ComputeFingerprint(Parts()).hex()};
  for (const auto& change : changes) {
    FingerprintParts parts = Parts();
    change(parts);
    seen.push_back(ComputeFingerprint(parts).hex());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

// What caches of earlier versions are found by; computed from docs/format.md.
TEST(FingerprintTest, IsWhatTheFormatSays) {
  FingerprintParts parts;
  parts.weights.fill(7);
  parts.numerics_version = "1";
  parts.groups = {GroupScheme{"q4", BlockGeometry(2, 16, {{2, 50}, {2, 10}})},
                  GroupScheme{"q8", BlockGeometry(1, 16, {{1, 32}})}};
  EXPECT_EQ(ComputeFingerprint(parts).hex(),
            "aa15ffc50f414602e314c9f2cf831f81"
            "76102882c6429eda154dc74ea6b9321b");
  parts.groups[0].first_spans = 4;
  parts.groups[0].first = {"f16", BlockGeometry(2, 16, {{2, 200}, {2, 200}})};
  EXPECT_EQ(ComputeFingerprint(parts).hex(),
            "726d0a54eb13e0e2fa023ce57e5a317f"
            "8f8fd26890bf6048b56d916f89fb7abb");
}

class WeightsHasherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.MakeDir("/models").ok());
    PutModel(100000, 1);
  }
  void PutModel(size_t size, uint8_t seed) {
    contents_.resize(size);
    for (size_t i = 0; i < size; ++i) {
      contents_[i] = static_cast<std::byte>(i * seed);
    }
    env_.Put("/models/m", contents_);
  }
  Digest Right() const {
    Sha256 hash;
    hash.Update(contents_.data(), contents_.size());
    return hash.Finish();
  }
  // True if it was read as a whole, false if the memo knew.
  bool HashesAgain(const std::string& memo = "/cache/weights.memo") {
    WeightsHasher hasher(&env_, memo, NullLogger());
    bool read = false;
    const auto digest =
        hasher.Hash("/models/m", [&](uint64_t, uint64_t) { read = true; });
    EXPECT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(digest->digest, Right());
    EXPECT_EQ(digest->file.inode, env_.Stat("/models/m")->inode);
    return read;
  }
  FakeClock clock_;
  SimDisk env_{&clock_};
  SimDisk::Bytes contents_;
};

TEST_F(WeightsHasherTest, AFileIsHashedOnce) {
  EXPECT_TRUE(HashesAgain());
  EXPECT_FALSE(HashesAgain());
}

TEST_F(WeightsHasherTest, AChangedFileIsHashedAgain) {
  HashesAgain();
  clock_.Advance(std::chrono::seconds(1));
  PutModel(100000, 3);
  EXPECT_TRUE(HashesAgain());
  EXPECT_FALSE(HashesAgain());
}

TEST_F(WeightsHasherTest, ATimeSetBackDoesNotFoolIt) {
  HashesAgain();
  const Clock::Wall time = env_.Stat("/models/m")->modified;
  clock_.Advance(std::chrono::seconds(1));
  // The inode's own change time moves with it.
  ASSERT_TRUE(env_.SetModified("/models/m", time).ok());
  EXPECT_TRUE(HashesAgain());
}

TEST_F(WeightsHasherTest, WithoutAMemoItIsHashedEachTime) {
  EXPECT_TRUE(HashesAgain(""));
  EXPECT_TRUE(HashesAgain(""));
}

TEST_F(WeightsHasherTest, ADamagedMemoIsIgnoredAndReplaced) {
  HashesAgain();
  const auto good = env_.Contents("/cache/weights.memo");
  for (size_t at = 0; at < good.size(); at += 7) {
    auto bytes = good;
    bytes[at] ^= std::byte{1};
    env_.Put("/cache/weights.memo", bytes);
    EXPECT_TRUE(HashesAgain()) << at;
    EXPECT_FALSE(HashesAgain()) << at;
  }
  for (size_t size = 0; size < good.size(); size += 5) {
    auto bytes = good;
    bytes.resize(size);
    env_.Put("/cache/weights.memo", bytes);
    EXPECT_TRUE(HashesAgain()) << size;
  }
}

TEST_F(WeightsHasherTest, AMemoThatCannotBeWrittenIsNoError) {
  for (const Op op :
       {Op::kMakeDir, Op::kCreate, Op::kWrite, Op::kSync, Op::kRename}) {
    env_.FailCall(op, 1, absl::PermissionDeniedError("no"));
    EXPECT_TRUE(HashesAgain());
    env_.ClearFaults();
    EXPECT_FALSE(env_.Exists("/cache/tmp-weights"));
  }
  EXPECT_TRUE(HashesAgain());
  EXPECT_FALSE(HashesAgain());
}

TEST_F(WeightsHasherTest, AFileThatChangesWhileItIsReadIsNotRemembered) {
  WeightsHasher hasher(&env_, "/cache/weights.memo", NullLogger());
  const auto digest = hasher.Hash("/models/m", [&](uint64_t, uint64_t) {
    clock_.Advance(std::chrono::seconds(1));
    ASSERT_TRUE(env_.SetModified("/models/m", clock_.WallNow()).ok());
  });
  EXPECT_TRUE(absl::IsUnavailable(digest.status()));
  EXPECT_FALSE(env_.Exists("/cache/weights.memo"));
  EXPECT_TRUE(HashesAgain());
}

TEST_F(WeightsHasherTest, AFileThatIsMissingIsNotFound) {
  WeightsHasher hasher(&env_, "", NullLogger());
  EXPECT_TRUE(absl::IsNotFound(hasher.Hash("/models/x", {}).status()));
}

TEST_F(WeightsHasherTest, LargeFilesAreReadInPiecesWithProgress) {
  PutModel((20 << 20) + 123, 5);
  WeightsHasher hasher(&env_, "", NullLogger());
  std::vector<uint64_t> seen;
  const auto digest = hasher.Hash(
      "/models/m", [&](uint64_t done, uint64_t) { seen.push_back(done); });
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->digest, Right());
  EXPECT_EQ(seen, (std::vector<uint64_t>{8 << 20, 16 << 20, (20 << 20) + 123}));
}

TEST_F(WeightsHasherTest, ManyModelsShareOneMemoOfBoundedSize) {
  for (int i = 0; i < 100; ++i) {
    PutModel(1000 + i, 1);
    HashesAgain();
  }
  EXPECT_FALSE(HashesAgain());
  EXPECT_LT(env_.Contents("/cache/weights.memo").size(), 64u * 1024);
}

}  // namespace
}  // namespace everwarm::store
