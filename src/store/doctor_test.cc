#include "store/doctor.h"

#include <gtest/gtest.h>

#include <string>

#include "base/units.h"
#include "testing/sim_disk.h"

namespace everwarm::store {
namespace {

using Op = SimDisk::Op;

// Every look at it takes a while.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(std::chrono::microseconds tick) : tick_(tick) {}
  Monotonic Now() const override { return now_ += tick_; }
  Wall WallNow() const override { return Wall(std::chrono::hours(500000)); }

 private:
  const std::chrono::microseconds tick_;
  mutable Monotonic now_{};
};

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() { EXPECT_TRUE(env_.MakeDir("/cache").ok()); }

  DiskReport Examine(DiskFacts facts = {.direct = true,
                                        .test_bytes = 4 * kMiB}) {
    DiskReport report = ExamineDisk(env_, clock_, "/cache", facts);
    EXPECT_FALSE(report.checks.empty());
    for (const DiskCheck& check : report.checks) {
      EXPECT_FALSE(check.text.empty()) << check.name;
    }
    return report;
  }

  TickingClock clock_{std::chrono::microseconds(300)};
  SimDisk env_{&clock_};
};

TEST_F(DoctorTest, AGoodDiskIsFoundGoodAndLeftAsItWas) {
  const auto before = env_.Paths();
  const DiskReport report = Examine();
  EXPECT_EQ(report.worst(), Finding::kGood);
  EXPECT_EQ(report.checks.size(), 9u);
  EXPECT_EQ(env_.Paths(), before);
}

TEST_F(DoctorTest, EachRefusalIsFoundWhereItBelongs) {
  const struct {
    Op op;
    int nth;
    const char* check;
  } kCases[] = {
      {Op::kSpace, 1, kCheckSpace},      {Op::kSync, 1, kCheckSync},
      {Op::kSync, 7, kCheckSync},        {Op::kSyncDir, 1, kCheckDirSync},
      {Op::kRename, 1, kCheckRename},    {Op::kLock, 1, kCheckLock},
      {Op::kSetModified, 1, kCheckTimes}};
  for (const auto& wanted : kCases) {
    env_.FailCall(wanted.op, wanted.nth, absl::UnavailableError("told to"));
    const DiskReport report = Examine();
    EXPECT_EQ(report.Of(wanted.check), Finding::kBad) << wanted.check;
    for (const DiskCheck& check : report.checks) {
      if (check.name == wanted.check) {
        EXPECT_NE(check.text.find("told to"), std::string::npos) << check.text;
      } else {
        EXPECT_EQ(check.finding, Finding::kGood) << check.name;
      }
    }
    env_.ClearFaults();
    EXPECT_EQ(env_.Paths().size(), 1u);
  }
}

TEST_F(DoctorTest, ASyncThatIsTooFastIsDoubted) {
  TickingClock hasty{std::chrono::microseconds(1)};
  const DiskReport report =
      ExamineDisk(env_, hasty, "/cache", {.direct = true, .test_bytes = kMiB});
  EXPECT_EQ(report.Of(kCheckSync), Finding::kDoubt);
}

TEST_F(DoctorTest, MemoryIsNoDiskAndAPageCacheIsSlower) {
  const DiskReport report =
      Examine({.in_memory = true, .direct = false, .test_bytes = kMiB});
  EXPECT_EQ(report.Of(kCheckSync), Finding::kBad);
  EXPECT_EQ(report.Of(kCheckDirect), Finding::kDoubt);
}

TEST_F(DoctorTest, AFullDiskIsABadOneThatIsLeftAsItWas) {
  env_.set_capacity(kMiB);
  const DiskReport report = Examine();
  EXPECT_EQ(report.Of(kCheckSpace), Finding::kDoubt);
  EXPECT_EQ(report.Of(kCheckSpeed), Finding::kBad);
  EXPECT_EQ(env_.Paths().size(), 1u);
}

TEST_F(DoctorTest, FilesOfAnotherExaminationAreLeftAlone) {
  env_.FailCall(Op::kUnlink, 1, absl::InternalError("EIO"), 1000);
  Examine();
  env_.ClearFaults();
  const auto of_the_other = env_.Paths();
  EXPECT_GT(of_the_other.size(), 1u);
  EXPECT_EQ(Examine().worst(), Finding::kGood);
  EXPECT_EQ(env_.Paths(), of_the_other);
}

TEST_F(DoctorTest, FilesThatAStartingServerRemovesAreNoBadDisk) {
  env_.FailCall(Op::kRename, 1, absl::NotFoundError("gone"));
  const DiskReport report = Examine();
  EXPECT_EQ(report.Of(kCheckRename), Finding::kDoubt);
  EXPECT_EQ(report.worst(), Finding::kDoubt);
}

}  // namespace
}  // namespace everwarm::store
