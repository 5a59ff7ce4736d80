// System calls that are interrupted or do only a part: whoever uses Env never
// hears of it. The linker puts these in front of the real ones (--wrap).
#include <gtest/gtest.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <numeric>
#include <random>

#include "store/aligned_buffer.h"
#include "store/posix_env.h"
#include "testing/store_harness.h"
#include "testing/temp_dir.h"

namespace {

// What befalls calls, and how often it did.
struct Trouble {
  bool active = false;
  std::mt19937 random{5};
  int interrupted = 0;
  int shortened = 0;

  bool Interrupt() {
    const bool now = active && random() % 3 == 0;
    interrupted += now ? 1 : 0;
    return now;
  }
  // Of that many 4 KiB pages.
  size_t Shorten(size_t pages) {
    if (!active || pages < 2 || random() % 2 == 0) {
      return pages;
    }
    ++shortened;
    return 1 + random() % (pages - 1);
  }
};
Trouble trouble;

constexpr size_t kPage = 4096;

// The first part of what was asked for: whole pages, as direct files have it.
std::vector<iovec> Part(const iovec* parts, int count) {
  size_t total = 0;
  for (int i = 0; i < count; ++i) {
    total += parts[i].iov_len;
  }
  std::vector<iovec> result(parts, parts + count);
  if (total % kPage != 0) {
    return result;
  }
  size_t left = trouble.Shorten(total / kPage) * kPage;
  for (iovec& part : result) {
    part.iov_len = std::min(part.iov_len, left);
    left -= part.iov_len;
  }
  return result;
}

}  // namespace

extern "C" {

ssize_t __real_preadv(int fd, const iovec* parts, int count, off_t offset);
ssize_t __real_pwritev(int fd, const iovec* parts, int count, off_t offset);
int __real_fsync(int fd);

ssize_t __wrap_preadv(int fd, const iovec* parts, int count, off_t offset) {
  if (trouble.Interrupt()) {
    errno = EINTR;
    return -1;
  }
  return __real_preadv(fd, Part(parts, count).data(), count, offset);
}

ssize_t __wrap_pwritev(int fd, const iovec* parts, int count, off_t offset) {
  if (trouble.Interrupt()) {
    errno = EINTR;
    return -1;
  }
  return __real_pwritev(fd, Part(parts, count).data(), count, offset);
}

int __wrap_fsync(int fd) {
  if (trouble.Interrupt()) {
    errno = EINTR;
    return -1;
  }
  return __real_fsync(fd);
}

}  // extern "C"

namespace everwarm::store {
namespace {

class InterruptedCallsTest : public ::testing::TestWithParam<bool> {
 protected:
  InterruptedCallsTest() { trouble = Trouble(); }
  ~InterruptedCallsTest() override { trouble.active = false; }

  TempDir dir_;
};

TEST_P(InterruptedCallsTest, FilesAreWrittenAndReadWhole) {
  PosixEnv env({.use_io_uring = false, .use_direct = GetParam()});
  constexpr size_t kBytes = 16 * kPage;
  const AlignedBuffer out(kBytes);
  for (size_t i = 0; i < kBytes; ++i) {
    out.data()[i] = static_cast<std::byte>(i * 7 / 3);
  }
  trouble.active = true;
  for (int round = 0; round < 50; ++round) {
    const std::string path = dir_.File("file" + std::to_string(round));
    auto file = env.Create(path, {.direct = true});
    ASSERT_TRUE(file.ok());
    const std::array<ConstBytes, 2> parts = {
        ConstBytes(out.data(), 3 * kPage),
        ConstBytes(out.data() + 3 * kPage, 13 * kPage)};
    ASSERT_TRUE((*file)->WriteAt(0, parts).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    file->reset();
    auto reader = env.OpenForRead(path, {.direct = true});
    ASSERT_TRUE(reader.ok());
    const AlignedBuffer in(kBytes);
    const std::array<MutableBytes, 2> into = {
        MutableBytes(in.data(), kPage),
        MutableBytes(in.data() + kPage, 15 * kPage)};
    const auto read = (*reader)->ReadAt(0, into);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, kBytes);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), kBytes), 0);
  }
  EXPECT_GT(trouble.interrupted, 50);
  EXPECT_GT(trouble.shortened, 50);
}

TEST_P(InterruptedCallsTest, AStoreDoesNotNotice) {
  PosixEnv env({.use_io_uring = false, .use_direct = GetParam()});
  StoreHarness h;
  h.options.dir = dir_.File("cache");
  const auto open = [&] {
    h.store.reset();
    auto opened = BlockStore::Open(
        h.options, {&env, &h.clock, &h.writers, &h.readers, NullLogger()});
    ASSERT_TRUE(opened.ok());
    h.store = std::move(opened->store);
    h.entries = std::move(opened->entries);
  };
  trouble.active = true;
  open();
  const auto chain = Chain(1, 16 * 20 + 5, TestFingerprint());
  h.StoreAll(chain);
  open();
  EXPECT_EQ(h.entries.size(), chain.size());
  for (const cache::BlockIdentity& identity : chain) {
    EXPECT_TRUE(h.LoadAndCheck(identity).ok());
  }
  EXPECT_EQ(h.store->stats().damaged, 0u);
  EXPECT_GT(trouble.interrupted + trouble.shortened, 50);
  h.store.reset();
}

INSTANTIATE_TEST_SUITE_P(Modes, InterruptedCallsTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Direct" : "Buffered";
                         });

}  // namespace
}  // namespace everwarm::store
