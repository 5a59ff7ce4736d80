// Env over the operating system: O_DIRECT where the file system takes it,
// io_uring where the system permits it, plain calls elsewhere.
#ifndef EVERWARM_STORE_POSIX_ENV_H_
#define EVERWARM_STORE_POSIX_ENV_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/env.h"

namespace everwarm::store {

class UringReader;

class PosixEnv final : public Env {
 public:
  struct Options {
    // False: reads one after the other with preadv, as where io_uring is
    // forbidden.
    bool use_io_uring = true;
    // False: everything goes through the page cache.
    bool use_direct = true;
  };

  PosixEnv();
  explicit PosixEnv(Options options);
  ~PosixEnv() override;

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(
      const std::string& path, const OpenOptions& options) override;
  absl::StatusOr<std::unique_ptr<File>> Create(
      const std::string& path, const OpenOptions& options) override;
  void ReadMany(
      absl::Span<const ReadJob> jobs,
      absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Unlink(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& dir) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status MakeDir(const std::string& path) override;
  absl::Status SyncDir(const std::string& dir) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override;
  absl::Status SetModified(const std::string& path, Clock::Wall time) override;
  absl::StatusOr<SpaceInfo> Space(const std::string& path) override;
  uint64_t UniqueNumber() override;

  // Whether reads and writes in `dir` pass the page cache: tried once with a
  // small unnamed file, then remembered.
  bool DirectWorks(const std::string& dir);

 private:
  std::unique_ptr<UringReader> TakeRing();
  void GiveRing(std::unique_ptr<UringReader> ring);

  const Options options_;
  Mutex mutex_;
  std::map<std::string, bool> direct_works_ ABSL_GUARDED_BY(mutex_);
  // Rings nobody uses just now; one per thread that reads at the same time.
  std::vector<std::unique_ptr<UringReader>> rings_ ABSL_GUARDED_BY(mutex_);
  bool uring_works_ ABSL_GUARDED_BY(mutex_);
};

// The Status of a failed system call: `what` is "open", `path` its subject.
absl::Status ErrnoStatus(int error, const char* what, const std::string& path);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_POSIX_ENV_H_
