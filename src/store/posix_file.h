// An open file descriptor as a File; the part of PosixEnv that UringReader
// shares.
#ifndef EVERWARM_STORE_POSIX_FILE_H_
#define EVERWARM_STORE_POSIX_FILE_H_

#include <sys/uio.h>

#include <string>
#include <utility>
#include <vector>

#include "store/env.h"

struct stat;

namespace everwarm::store {

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class PosixFile final : public File {
 public:
  PosixFile(Fd fd, std::string path, bool direct)
      : fd_(std::move(fd)), path_(std::move(path)), direct_(direct) {}

  absl::StatusOr<FileInfo> Stat() const override;
  absl::StatusOr<size_t> ReadAt(
      uint64_t offset, absl::Span<const MutableBytes> buffers) override;
  absl::Status WriteAt(uint64_t offset,
                       absl::Span<const ConstBytes> buffers) override;
  absl::Status Sync() override;

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  const Fd fd_;
  const std::string path_;
  const bool direct_;
};

FileInfo InfoFromStat(const struct stat& stat);

// `buffers` without their first `skip` bytes, in the system's form.
template <typename Bytes>
std::vector<iovec> ToIovecs(absl::Span<const Bytes> buffers, size_t skip) {
  std::vector<iovec> result;
  result.reserve(buffers.size());
  for (const Bytes& buffer : buffers) {
    if (skip >= buffer.size()) {
      skip -= buffer.size();
      continue;
    }
    auto* data = const_cast<std::byte*>(buffer.data());
    result.push_back({data + skip, buffer.size() - skip});
    skip = 0;
  }
  return result;
}

template <typename Bytes>
size_t TotalBytes(absl::Span<const Bytes> buffers) {
  size_t total = 0;
  for (const Bytes& buffer : buffers) {
    total += buffer.size();
  }
  return total;
}

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_POSIX_FILE_H_
