// The files that the store sees: the one interface between it and a disk, so
// that tests can fail, stall, tear and lose what a real disk would.
//
// Threads:  Env: any. File: one thread at a time.
// Blocks:   every call may wait for the disk.
// Errors:   kNotFound absent; kAlreadyExists; kResourceExhausted no space left;
//           kPermissionDenied; kFailedPrecondition not a regular file, or a
//           lock that somebody holds; kUnavailable everything else, worth
//           another try later. Messages name the file and the system's reason.
// Durable:  bytes after File::Sync(), names after Env::SyncDir().
#ifndef EVERWARM_STORE_ENV_H_
#define EVERWARM_STORE_ENV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"

namespace everwarm::store {

// Offsets, lengths and addresses of a direct file are multiples of this.
inline constexpr size_t kIoAlignment = 4096;

using MutableBytes = absl::Span<std::byte>;
using ConstBytes = absl::Span<const std::byte>;

enum class FileKind : uint8_t { kRegular, kDirectory, kOther };

struct FileInfo {
  FileKind kind = FileKind::kOther;
  uint64_t size = 0;
  // Bytes it takes on the disk, which is what a cap counts.
  uint64_t allocated = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  Clock::Wall modified;
  // Last change of the inode: moves also when `modified` is set by hand.
  Clock::Wall changed;
};

struct OpenOptions {
  // Past the page cache where the file system can. The caller then keeps to
  // kIoAlignment whether or not it was granted.
  bool direct = false;
  // A symbolic link as last part of the path is followed; else it is refused.
  bool follow_links = false;
};

// An open file; closed by the destructor.
class File {
 public:
  virtual ~File() = default;

  virtual absl::StatusOr<FileInfo> Stat() const = 0;
  // Fills `buffers` one after the other from `offset`. Returns how many bytes
  // it read: fewer than asked for only at the end of the file.
  virtual absl::StatusOr<size_t> ReadAt(
      uint64_t offset, absl::Span<const MutableBytes> buffers) = 0;
  // Writes all of `buffers` one after the other from `offset`.
  virtual absl::Status WriteAt(uint64_t offset,
                               absl::Span<const ConstBytes> buffers) = 0;
  virtual absl::Status Sync() = 0;
};

// Held until it is destroyed; given back by the system when a process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;

  // Whether it still keeps others out: whoever opens the name meets this lock.
  // Errors: kNotFound, the name is gone; kFailedPrecondition, it is another
  //         file's by now, which somebody else may hold.
  virtual absl::Status Check() const = 0;
};

struct SpaceInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// One of several reads in flight. Must stay as it is until its `done`.
struct ReadJob {
  File* file = nullptr;
  uint64_t offset = 0;
  absl::Span<const MutableBytes> buffers;
};

class Env {
 public:
  virtual ~Env() = default;

  // For reading. Never waits for another process (a FIFO is refused).
  virtual absl::StatusOr<std::unique_ptr<File>> OpenForRead(
      const std::string& path, const OpenOptions& options) = 0;
  // A new file, mode 0600, for writing. kAlreadyExists for any name in use.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(
      const std::string& path, const OpenOptions& options) = 0;

  // Runs the jobs, several at a time, and calls done(index, bytes read) on this
  // thread for each as it ends, in any order. Returns after the last.
  virtual void ReadMany(
      absl::Span<const ReadJob> jobs,
      absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) = 0;

  // Replaces `to` in one step.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Unlink(const std::string& path) = 0;
  // Names in the directory, without "." and "..", in no order.
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& dir) = 0;
  // Of the name itself: links are not followed.
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  // With its missing parents, mode 0700. OK when it is there already.
  virtual absl::Status MakeDir(const std::string& path) = 0;
  virtual absl::Status SyncDir(const std::string& dir) = 0;
  // Creates the file, mode 0600, when it is absent. kFailedPrecondition when
  // another process, or this one, holds the lock, and when it is no regular
  // file; the message says which.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) = 0;
  virtual absl::Status SetModified(const std::string& path,
                                   Clock::Wall time) = 0;
  // Of the file system that holds `path`, for a caller without privileges.
  virtual absl::StatusOr<SpaceInfo> Space(const std::string& path) = 0;
  // Another number each time, in other processes too.
  virtual uint64_t UniqueNumber() = 0;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_ENV_H_
