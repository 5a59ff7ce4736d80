#include "store/posix_env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/aligned_buffer.h"
#include "store/posix_file.h"
#include "store/uring_reader.h"

namespace everwarm::store {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirMode = 0700;

std::string DirName(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Opens, again after an interruption.
Fd Open(const std::string& path, int flags, mode_t mode = 0) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) {
      return Fd(fd);
    }
  }
}

class PosixLock final : public FileLock {
 public:
  PosixLock(Fd fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Check() const override {
    struct stat held;
    struct stat named;
    if (::fstat(fd_.get(), &held) != 0 || ::lstat(path_.c_str(), &named) != 0) {
      return ErrnoStatus(errno, "stat", path_);
    }
    if (held.st_dev != named.st_dev || held.st_ino != named.st_ino) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, " is no longer the file that was locked here"));
    }
    return absl::OkStatus();
  }
  absl::Status CheckIsFile() const {
    struct stat held;
    if (::fstat(fd_.get(), &held) != 0) {
      return ErrnoStatus(errno, "stat", path_);
    }
    if (!S_ISREG(held.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("lock ", path_, ": not a regular file"));
    }
    return absl::OkStatus();
  }
  absl::Status Take() {
    while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return absl::FailedPreconditionError(
            absl::StrCat(path_, " is locked by another process"));
      }
      if (errno != EINTR) {
        return ErrnoStatus(errno, "lock", path_);
      }
    }
    return absl::OkStatus();
  }

 private:
  const Fd fd_;
  const std::string path_;
};

// Writes and reads one page of a file without a name, which leaves nothing
// behind whatever happens.
bool ProbeDirect(const std::string& dir) {
#ifdef O_TMPFILE
  const Fd fd = Open(dir, O_TMPFILE | O_RDWR | O_DIRECT, kFileMode);
  if (!fd.ok()) {
    return false;
  }
  const AlignedBuffer page(kIoAlignment);
  return ::pwrite(fd.get(), page.data(), kIoAlignment, 0) ==
             static_cast<ssize_t>(kIoAlignment) &&
         ::pread(fd.get(), page.data(), kIoAlignment, 0) ==
             static_cast<ssize_t>(kIoAlignment);
#else
  return false;
#endif
}

}  // namespace

absl::Status ErrnoStatus(int error, const char* what, const std::string& path) {
  const std::string message = absl::StrCat(
      what, " ", path, ": ", std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ELOOP:
    case EISDIR:
    case ENXIO:
    case ENODEV:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

PosixEnv::PosixEnv() : PosixEnv(Options{}) {}

PosixEnv::PosixEnv(Options options)
    : options_(options), uring_works_(options.use_io_uring) {}

PosixEnv::~PosixEnv() = default;

bool PosixEnv::DirectWorks(const std::string& dir) {
  if (!options_.use_direct) {
    return false;
  }
  {
    MutexLock lock(mutex_);
    const auto found = direct_works_.find(dir);
    if (found != direct_works_.end()) {
      return found->second;
    }
  }
  const bool works = ProbeDirect(dir);
  MutexLock lock(mutex_);
  direct_works_[dir] = works;
  return works;
}

absl::StatusOr<std::unique_ptr<File>> PosixEnv::OpenForRead(
    const std::string& path, const OpenOptions& options) {
  const bool direct = options.direct && DirectWorks(DirName(path));
  // O_NONBLOCK: a FIFO without a writer would keep open() waiting for ever.
  int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  if (!options.follow_links) {
    flags |= O_NOFOLLOW;
  }
  Fd fd = Open(path, direct ? flags | O_DIRECT : flags);
  // A link may lead to another file system than the one that was probed.
  const bool refused = direct && !fd.ok() && errno == EINVAL;
  if (refused) {
    fd = Open(path, flags);
  }
  if (!fd.ok()) {
    return ErrnoStatus(errno, "open", path);
  }
  struct stat stat;
  if (::fstat(fd.get(), &stat) != 0) {
    return ErrnoStatus(errno, "stat", path);
  }
  if (!S_ISREG(stat.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("open ", path, ": not a regular file"));
  }
  return std::make_unique<PosixFile>(std::move(fd), path, direct && !refused);
}

absl::StatusOr<std::unique_ptr<File>> PosixEnv::Create(
    const std::string& path, const OpenOptions& options) {
  const bool direct = options.direct && DirectWorks(DirName(path));
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  Fd fd = Open(path, direct ? flags | O_DIRECT : flags, kFileMode);
  if (!fd.ok()) {
    return ErrnoStatus(errno, "create", path);
  }
  return std::make_unique<PosixFile>(std::move(fd), path, direct);
}

std::unique_ptr<UringReader> PosixEnv::TakeRing() {
  {
    MutexLock lock(mutex_);
    if (!uring_works_) {
      return nullptr;
    }
    if (!rings_.empty()) {
      std::unique_ptr<UringReader> ring = std::move(rings_.back());
      rings_.pop_back();
      return ring;
    }
  }
  std::unique_ptr<UringReader> ring = UringReader::Create();
  if (ring == nullptr) {
    MutexLock lock(mutex_);
    uring_works_ = false;
  }
  return ring;
}

void PosixEnv::GiveRing(std::unique_ptr<UringReader> ring) {
  MutexLock lock(mutex_);
  rings_.push_back(std::move(ring));
}

void PosixEnv::ReadMany(
    absl::Span<const ReadJob> jobs,
    absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) {
  std::unique_ptr<UringReader> ring = jobs.size() > 1 ? TakeRing() : nullptr;
  if (ring != nullptr) {
    ring->Read(jobs, done);
    GiveRing(std::move(ring));
    return;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    done(i, jobs[i].file->ReadAt(jobs[i].offset, jobs[i].buffers));
  }
}

absl::Status PosixEnv::Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, "rename", absl::StrCat(from, " to ", to));
  }
  return absl::OkStatus();
}

absl::Status PosixEnv::Unlink(const std::string& path) {
  if (::unlink(path.c_str()) != 0) {
    return ErrnoStatus(errno, "remove", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PosixEnv::List(
    const std::string& dir) {
  DIR* stream = ::opendir(dir.c_str());
  if (stream == nullptr) {
    return ErrnoStatus(errno, "list", dir);
  }
  std::vector<std::string> names;
  errno = 0;
  // Each stream has one reader, for which readdir() is safe on Linux.
  while (const dirent* entry = ::readdir(stream)) {  // NOLINT
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      names.emplace_back(name);
    }
    errno = 0;
  }
  const int error = errno;
  ::closedir(stream);
  if (error != 0) {
    return ErrnoStatus(error, "list", dir);
  }
  return names;
}

absl::StatusOr<FileInfo> PosixEnv::Stat(const std::string& path) {
  struct stat stat;
  if (::lstat(path.c_str(), &stat) != 0) {
    return ErrnoStatus(errno, "stat", path);
  }
  return InfoFromStat(stat);
}

absl::Status PosixEnv::MakeDir(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), kDirMode) != 0 && errno != EEXIST) {
      // A parent that may not be written but exists gives EROFS or EACCES too.
      const int error = errno;
      struct stat stat;
      if (::stat(part.c_str(), &stat) != 0) {
        return ErrnoStatus(error, "make directory", part);
      }
    }
    if (slash == std::string::npos) {
      break;
    }
  }
  struct stat stat;
  if (::stat(path.c_str(), &stat) != 0) {
    return ErrnoStatus(errno, "make directory", path);
  }
  if (!S_ISDIR(stat.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a directory"));
  }
  return absl::OkStatus();
}

absl::Status PosixEnv::SyncDir(const std::string& dir) {
  const Fd fd = Open(dir, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) {
    return ErrnoStatus(errno, "open directory", dir);
  }
  while (::fsync(fd.get()) != 0) {
    if (errno != EINTR) {
      return ErrnoStatus(errno, "fsync directory", dir);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> PosixEnv::Lock(
    const std::string& path) {
  // Whoever removes the file between the two steps leaves a lock on nothing.
  constexpr int kTries = 3;
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    Fd fd = Open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                 kFileMode);
    if (!fd.ok()) {
      return errno == ELOOP ? absl::FailedPreconditionError(absl::StrCat(
                                  "lock ", path, ": is a symbolic link"))
                            : ErrnoStatus(errno, "lock", path);
    }
    auto lock = std::make_unique<PosixLock>(std::move(fd), path);
    EW_RETURN_IF_ERROR(lock->CheckIsFile());
    EW_RETURN_IF_ERROR(lock->Take());
    status = lock->Check();
    if (status.ok()) {
      return lock;
    }
  }
  return status;
}

absl::Status PosixEnv::SetModified(const std::string& path, Clock::Wall time) {
  const auto since_epoch = std::chrono::duration_cast<std::chrono::nanoseconds>(
      time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = seconds.count();
  times[1].tv_nsec = (since_epoch - seconds).count();
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, "set time of", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<SpaceInfo> PosixEnv::Space(const std::string& path) {
  struct statvfs info;
  while (::statvfs(path.c_str(), &info) != 0) {
    if (errno != EINTR) {
      return ErrnoStatus(errno, "statvfs", path);
    }
  }
  SpaceInfo space;
  space.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  space.total_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  return space;
}

uint64_t PosixEnv::UniqueNumber() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace everwarm::store
