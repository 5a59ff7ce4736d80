#include "store/posix_env.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "store/aligned_buffer.h"
#include "testing/temp_dir.h"

namespace everwarm::store {
namespace {

struct Mode {
  const char* name;
  PosixEnv::Options options;
};

class PosixEnvTest : public ::testing::TestWithParam<Mode> {
 protected:
  PosixEnvTest() : env_(GetParam().options) {}

  void Write(const std::string& path, const AlignedBuffer& bytes) {
    auto file = env_.Create(path, {.direct = true});
    ASSERT_TRUE(file.ok()) << file.status();
    const std::array<ConstBytes, 2> parts = {
        ConstBytes(bytes.data(), kIoAlignment),
        ConstBytes(bytes.data() + kIoAlignment, bytes.size() - kIoAlignment)};
    ASSERT_TRUE((*file)->WriteAt(0, parts).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }
  static AlignedBuffer Pattern(size_t size, int seed) {
    AlignedBuffer buffer(size);
    for (size_t i = 0; i < size; ++i) {
      buffer.data()[i] = static_cast<std::byte>(i * 31 + i / 4096 + seed);
    }
    return buffer;
  }
  TempDir dir_;
  PosixEnv env_;
};

TEST_P(PosixEnvTest, WhatIsWrittenIsReadBack) {
  const AlignedBuffer out = Pattern(300 * 4096, 1);
  Write(dir_.File("a"), out);
  auto file = env_.OpenForRead(dir_.File("a"), {.direct = true});
  ASSERT_TRUE(file.ok());
  const AlignedBuffer in(out.size() + kIoAlignment);
  const std::array<MutableBytes, 2> parts = {
      in.first(2 * kIoAlignment),
      MutableBytes(in.data() + 2 * kIoAlignment, in.size() - 2 * kIoAlignment)};
  // Asks for more than there is: the end of the file is a short count.
  EXPECT_EQ(*(*file)->ReadAt(0, parts), out.size());
  EXPECT_TRUE(std::equal(out.data(), out.data() + out.size(), in.data()));
  const auto info = (*file)->Stat();
  EXPECT_EQ(info->size, out.size());
  EXPECT_GE(info->allocated, out.size());
  EXPECT_EQ(*(*file)->ReadAt(out.size(), parts), 0u);
}

TEST_P(PosixEnvTest, ManyReadsEachEndOnceWithTheirOwnBytes) {
  constexpr int kFiles = 50;
  std::vector<std::unique_ptr<File>> files;
  std::vector<AlignedBuffer> in(kFiles);
  std::vector<std::array<MutableBytes, 1>> parts(kFiles);
  std::vector<ReadJob> jobs;
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = dir_.File(std::to_string(i));
    Write(path, Pattern((2 + i) * 4096, i));
    auto file = env_.OpenForRead(path, {.direct = true});
    ASSERT_TRUE(file.ok());
    files.push_back(*std::move(file));
    // The last page lies beyond the end.
    in[i].Resize((3 + i) * 4096);
    parts[i] = {in[i].first(in[i].size())};
    jobs.push_back({files.back().get(), 0, parts[i]});
  }
  std::vector<int> ended(kFiles);
  env_.ReadMany(jobs, [&](size_t i, absl::StatusOr<size_t> bytes) {
    ++ended[i];
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(*bytes, (2 + i) * 4096);
  });
  for (int i = 0; i < kFiles; ++i) {
    EXPECT_EQ(ended[i], 1);
    const AlignedBuffer wanted = Pattern((2 + i) * 4096, i);
    EXPECT_TRUE(
        std::equal(wanted.data(), wanted.data() + wanted.size(), in[i].data()));
  }
}

TEST_P(PosixEnvTest, AFailedReadAmongManyFailsAlone) {
  Write(dir_.File("a"), Pattern(8192, 1));
  auto good = env_.OpenForRead(dir_.File("a"), {.direct = true});
  // Not open for reading: the system refuses.
  auto bad = env_.Create(dir_.File("b"), {.direct = true});
  ASSERT_TRUE(good.ok() && bad.ok());
  const AlignedBuffer memory(3 * 4096);
  std::array<std::array<MutableBytes, 1>, 3> parts;
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = {MutableBytes(memory.data() + i * 4096, 4096)};
  }
  const std::vector<ReadJob> jobs = {{good->get(), 0, parts[0]},
                                     {bad->get(), 0, parts[1]},
                                     {good->get(), 4096, parts[2]}};
  std::vector<bool> ok(3);
  env_.ReadMany(jobs, [&](size_t i, const absl::StatusOr<size_t>& bytes) {
    ok[i] = bytes.ok();
  });
  EXPECT_EQ(ok, (std::vector<bool>{true, false, true}));
}

INSTANTIATE_TEST_SUITE_P(Modes, PosixEnvTest,
                         ::testing::Values(Mode{"UringDirect", {true, true}},
                                           Mode{"PreadDirect", {false, true}},
                                           Mode{"UringBuffered", {true, false}},
                                           Mode{"PreadBuffered",
                                                {false, false}}),
                         [](const auto& info) { return info.param.name; });

TEST(PosixEnvFilesTest, FilesAndDirectoriesAreForTheOwnerAlone) {
  const TempDir dir;
  PosixEnv env;
  const mode_t old_mask = umask(0);
  ASSERT_TRUE(env.MakeDir(dir.File("x/y")).ok());
  ASSERT_TRUE(env.Create(dir.File("x/y/f"), {}).ok());
  ASSERT_TRUE(env.Lock(dir.File("x/lock")).ok());
  umask(old_mask);
  const auto mode = [](const std::string& path) {
    struct stat stat;
    EXPECT_EQ(lstat(path.c_str(), &stat), 0);
    return stat.st_mode & 0777;
  };
  EXPECT_EQ(mode(dir.File("x")), 0700u);
  EXPECT_EQ(mode(dir.File("x/y")), 0700u);
  EXPECT_EQ(mode(dir.File("x/y/f")), 0600u);
  EXPECT_EQ(mode(dir.File("x/lock")), 0600u);
}

TEST(PosixEnvFilesTest, OddThingsAreRefusedWithoutWaiting) {
  const TempDir dir;
  PosixEnv env;
  ASSERT_EQ(mkfifo(dir.File("fifo").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(dir.File("dir").c_str(), 0700), 0);
  ASSERT_EQ(symlink("nowhere", dir.File("dangling").c_str()), 0);
  std::ofstream(dir.File("file")) << "x";
  ASSERT_EQ(symlink("file", dir.File("link").c_str()), 0);
  for (const bool direct : {false, true}) {
    for (const char* name : {"fifo", "dir", "dangling", "link"}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(
          env.OpenForRead(dir.File(name), {.direct = direct}).status()))
          << name;
    }
    EXPECT_TRUE(absl::IsNotFound(
        env.OpenForRead(dir.File("none"), {.direct = direct}).status()));
    EXPECT_TRUE(env.OpenForRead(dir.File("link"),
                                {.direct = direct, .follow_links = true})
                    .ok());
  }
  EXPECT_TRUE(
      absl::IsFailedPrecondition(env.OpenForRead("/dev/null", {}).status()));
  EXPECT_EQ(env.Stat(dir.File("fifo"))->kind, FileKind::kOther);
  EXPECT_EQ(env.Stat(dir.File("dangling"))->kind, FileKind::kOther);
  EXPECT_EQ(env.Stat(dir.File("dir"))->kind, FileKind::kDirectory);
}

TEST(PosixEnvFilesTest, CreateNeverTakesAnExistingName) {
  const TempDir dir;
  PosixEnv env;
  ASSERT_EQ(symlink("elsewhere", dir.File("a").c_str()), 0);
  EXPECT_TRUE(absl::IsAlreadyExists(env.Create(dir.File("a"), {}).status()));
  ASSERT_TRUE(env.Create(dir.File("b"), {}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(env.Create(dir.File("b"), {}).status()));
  EXPECT_TRUE(absl::IsNotFound(env.Create(dir.File("no/b"), {}).status()));
}

TEST(PosixEnvFilesTest, NamesAreListedRenamedAndRemoved) {
  const TempDir dir;
  PosixEnv env;
  ASSERT_TRUE(env.Create(dir.File("a"), {}).ok());
  ASSERT_TRUE(env.Rename(dir.File("a"), dir.File("b")).ok());
  EXPECT_EQ(*env.List(dir.path()), std::vector<std::string>{"b"});
  ASSERT_TRUE(env.SyncDir(dir.path()).ok());
  ASSERT_TRUE(env.Unlink(dir.File("b")).ok());
  EXPECT_TRUE(absl::IsNotFound(env.Unlink(dir.File("b"))));
  EXPECT_TRUE(env.List(dir.path())->empty());
  EXPECT_TRUE(absl::IsNotFound(env.List(dir.File("none")).status()));
  EXPECT_TRUE(absl::IsNotFound(env.SyncDir(dir.File("none"))));
}

TEST(PosixEnvFilesTest, ALockIsHeldOnceUntilItIsDropped) {
  const TempDir dir;
  PosixEnv env;
  auto first = env.Lock(dir.File("lock"));
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(env.Lock(dir.File("lock")).status()));
  first->reset();
  EXPECT_TRUE(env.Lock(dir.File("lock")).ok());
}

TEST(PosixEnvFilesTest, ALockKnowsWhetherItStillKeepsOthersOut) {
  const TempDir dir;
  PosixEnv env;
  const auto first = env.Lock(dir.File("lock"));
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)->Check().ok());
  ASSERT_TRUE(env.Unlink(dir.File("lock")).ok());
  EXPECT_TRUE(absl::IsNotFound((*first)->Check()));
  const auto second = env.Lock(dir.File("lock"));
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE((*second)->Check().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*first)->Check()));
}

TEST(PosixEnvFilesTest, WhatCannotBeALockSaysWhatItIs) {
  const TempDir dir;
  PosixEnv env;
  ASSERT_EQ(mkdir(dir.File("dir").c_str(), 0700), 0);
  ASSERT_EQ(symlink("elsewhere", dir.File("link").c_str()), 0);
  ASSERT_EQ(mkfifo(dir.File("fifo").c_str(), 0600), 0);
  const auto message = [&](const char* name) {
    const absl::Status status = env.Lock(dir.File(name)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  EXPECT_NE(message("dir").find("directory"), std::string::npos);
  EXPECT_NE(message("link").find("symbolic link"), std::string::npos);
  EXPECT_NE(message("fifo").find("not a regular file"), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(env.Stat(dir.File("elsewhere")).status()));
}

TEST(PosixEnvFilesTest, UniqueNumbersDiffer) {
  PosixEnv env;
  PosixEnv other;
  EXPECT_NE(env.UniqueNumber(), env.UniqueNumber());
  EXPECT_NE(env.UniqueNumber(), other.UniqueNumber());
}

TEST(PosixEnvFilesTest, TimesAreSetToTheNanosecondAlsoBefore1970) {
  const TempDir dir;
  PosixEnv env;
  ASSERT_TRUE(env.Create(dir.File("a"), {}).ok());
  for (const int64_t nanoseconds : {int64_t{1'700'000'000'123'456'789},
                                    int64_t{0}, int64_t{-1'500'000'000}}) {
    const Clock::Wall time{std::chrono::nanoseconds(nanoseconds)};
    ASSERT_TRUE(env.SetModified(dir.File("a"), time).ok());
    EXPECT_EQ(env.Stat(dir.File("a"))->modified, time);
  }
}

TEST(PosixEnvFilesTest, AFullDiskIsResourceExhausted) {
  PosixEnv env({.use_io_uring = false, .use_direct = false});
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoStatus(ENOSPC, "write", "x")));
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoStatus(EDQUOT, "write", "x")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoStatus(EIO, "read", "x")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoStatus(EMFILE, "open", "x")));
  const auto space = env.Space("/");
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total_bytes, space->free_bytes);
}

}  // namespace
}  // namespace everwarm::store
