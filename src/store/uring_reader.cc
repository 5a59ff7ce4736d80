#include "store/uring_reader.h"

#include <liburing.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "store/posix_file.h"

namespace everwarm::store {
namespace {

// Reads in flight at once. A block is 1 MiB or so: this many keep any disk
// busy.
constexpr unsigned kDepth = 32;

}  // namespace

struct UringReader::Ring {
  io_uring uring;
};

UringReader::UringReader(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}

std::unique_ptr<UringReader> UringReader::Create() {
  auto ring = std::make_unique<Ring>();
  if (io_uring_queue_init(kDepth, &ring->uring, 0) < 0) {
    return nullptr;
  }
  return std::unique_ptr<UringReader>(new UringReader(std::move(ring)));
}

UringReader::~UringReader() { io_uring_queue_exit(&ring_->uring); }

void UringReader::Read(
    absl::Span<const ReadJob> jobs,
    absl::FunctionRef<void(size_t, absl::StatusOr<size_t>)> done) {
  // The kernel reads these until the job has ended.
  std::vector<std::vector<iovec>> parts(jobs.size());
  size_t next = 0;
  size_t in_flight = 0;

  // Whatever io_uring did not do in one go, plain calls finish.
  const auto finish = [&](size_t index, int result) {
    const ReadJob& job = jobs[index];
    const size_t total = TotalBytes(job.buffers);
    if (result >= 0 && static_cast<size_t>(result) == total) {
      done(index, total);
      return;
    }
    done(index, job.file->ReadAt(job.offset, job.buffers));
  };

  while (next < jobs.size() || in_flight > 0) {
    while (next < jobs.size() && in_flight < kDepth) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_->uring);
      if (entry == nullptr) {
        break;
      }
      const ReadJob& job = jobs[next];
      parts[next] = ToIovecs(job.buffers, 0);
      io_uring_prep_readv(entry, static_cast<const PosixFile*>(job.file)->fd(),
                          parts[next].data(),
                          static_cast<unsigned>(parts[next].size()),
                          job.offset);
      io_uring_sqe_set_data64(entry, next);
      ++next;
      ++in_flight;
    }
    // Errors here (EINTR, EAGAIN, EBUSY) pass; entries that were not taken stay
    // in the ring for the next round. The buffers are the caller's, so there is
    // no way out before the last read has ended.
    io_uring_submit_and_wait(&ring_->uring, 1);
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_->uring, &completion) == 0) {
      const size_t index = io_uring_cqe_get_data64(completion);
      const int result = completion->res;
      io_uring_cqe_seen(&ring_->uring, completion);
      --in_flight;
      finish(index, result);
    }
  }
}

}  // namespace everwarm::store
