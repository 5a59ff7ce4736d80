// Which file it is, and in which state: equal stamps, equal contents, unless
// somebody sets a clock back.
//
// Threads: pure, any.
#ifndef EVERWARM_MODELS_FILE_STAMP_H_
#define EVERWARM_MODELS_FILE_STAMP_H_

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace everwarm::models {

struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  // Since 1970. The second moves also when the first is set by hand, and when
  // the file gets another name.
  std::chrono::nanoseconds modified{0};
  std::chrono::nanoseconds changed{0};

  bool operator==(const FileStamp&) const = default;
};

inline FileStamp StampOf(const struct stat& stat) {
  const auto nanoseconds = [](const timespec& time) {
    return std::chrono::seconds(time.tv_sec) +
           std::chrono::nanoseconds(time.tv_nsec);
  };
  return {stat.st_dev, stat.st_ino, static_cast<uint64_t>(stat.st_size),
          nanoseconds(stat.st_mtim), nanoseconds(stat.st_ctim)};
}

// Of the file that the path leads to; nothing when there is none.
inline std::optional<FileStamp> StampOf(const std::string& path) {
  struct stat stat {};
  if (::stat(path.c_str(), &stat) != 0) {
    return std::nullopt;
  }
  return StampOf(stat);
}

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_FILE_STAMP_H_
