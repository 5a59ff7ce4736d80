// Many reads in flight from one thread, by io_uring.
#ifndef EVERWARM_STORE_URING_READER_H_
#define EVERWARM_STORE_URING_READER_H_

#include <memory>

#include "store/env.h"

namespace everwarm::store {

// Threads: one at a time.
class UringReader {
 public:
  // Null where the system does not permit it.
  static std::unique_ptr<UringReader> Create();
  ~UringReader();
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  // As Env::ReadMany(). Requires: files of PosixEnv.
  void Read(absl::Span<const ReadJob> jobs,
            absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done);

 private:
  struct Ring;
  explicit UringReader(std::unique_ptr<Ring> ring);
  const std::unique_ptr<Ring> ring_;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_URING_READER_H_
