#include "store/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>

#include "absl/strings/str_cat.h"
#include "store/posix_env.h"

namespace everwarm::store {
namespace {

Clock::Wall WallFromTimespec(const timespec& time) {
  return Clock::Wall(std::chrono::duration_cast<Clock::Wall::duration>(
      std::chrono::seconds(time.tv_sec) +
      std::chrono::nanoseconds(time.tv_nsec)));
}

// A direct transfer that stops inside of a sector has met the end of the file.
constexpr size_t kSectorBytes = 512;

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

FileInfo InfoFromStat(const struct stat& stat) {
  FileInfo info;
  info.kind = S_ISREG(stat.st_mode)   ? FileKind::kRegular
              : S_ISDIR(stat.st_mode) ? FileKind::kDirectory
                                      : FileKind::kOther;
  info.size = static_cast<uint64_t>(stat.st_size);
  // st_blocks counts units of 512 bytes, whatever the file system's block is.
  info.allocated = static_cast<uint64_t>(stat.st_blocks) * 512;
  info.device = stat.st_dev;
  info.inode = stat.st_ino;
  info.modified = WallFromTimespec(stat.st_mtim);
  info.changed = WallFromTimespec(stat.st_ctim);
  return info;
}

absl::StatusOr<FileInfo> PosixFile::Stat() const {
  struct stat stat;
  if (::fstat(fd_.get(), &stat) != 0) {
    return ErrnoStatus(errno, "stat", path_);
  }
  return InfoFromStat(stat);
}

absl::StatusOr<size_t> PosixFile::ReadAt(
    uint64_t offset, absl::Span<const MutableBytes> buffers) {
  const size_t total = TotalBytes(buffers);
  size_t done = 0;
  while (done < total) {
    const std::vector<iovec> parts = ToIovecs(buffers, done);
    const int count = static_cast<int>(std::min<size_t>(parts.size(), IOV_MAX));
    const ssize_t got = ::preadv(fd_.get(), parts.data(), count,
                                 static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoStatus(errno, "read", path_);
    }
    done += static_cast<size_t>(got);
    if (got == 0 || (direct_ && done % kSectorBytes != 0)) {
      break;
    }
  }
  return done;
}

absl::Status PosixFile::WriteAt(uint64_t offset,
                                absl::Span<const ConstBytes> buffers) {
  const size_t total = TotalBytes(buffers);
  size_t done = 0;
  while (done < total) {
    const std::vector<iovec> parts = ToIovecs(buffers, done);
    const int count = static_cast<int>(std::min<size_t>(parts.size(), IOV_MAX));
    const ssize_t put = ::pwritev(fd_.get(), parts.data(), count,
                                  static_cast<off_t>(offset + done));
    if (put < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoStatus(errno, "write", path_);
    }
    if (put == 0) {
      return absl::UnavailableError(absl::StrCat("write ", path_,
                                                 ": no progress after ", done,
                                                 " of ", total, " bytes"));
    }
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status PosixFile::Sync() {
  // Not repeated on an error: the kernel may have dropped the pages already.
  while (::fsync(fd_.get()) != 0) {
    if (errno != EINTR) {
      return ErrnoStatus(errno, "fsync", path_);
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::store
