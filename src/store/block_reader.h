// Reads blocks from their files straight into slots, many at a time, and lets
// nothing through that was not checked.
#ifndef EVERWARM_STORE_BLOCK_READER_H_
#define EVERWARM_STORE_BLOCK_READER_H_

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/tier.h"
#include "store/block_file.h"
#include "store/block_writer.h"
#include "store/store_state.h"

namespace everwarm::store {

// Threads: as said at each method; several Run() at a time on the executor.
class BlockReader : public std::enable_shared_from_this<BlockReader> {
 public:
  // The writer takes away what turns out damaged.
  BlockReader(std::shared_ptr<StoreState> state,
              std::shared_ptr<BlockWriter> writer);

  // Any thread. As Tier::Load().
  void Enqueue(cache::LoadRequest request);
  // Any thread. Drops what is queued, for good.
  void Clear();
  void AddStats(cache::TierStats& stats) const;

 private:
  struct Job {
    cache::LoadRequest request;
    // Of the entry when the read began; 0 when there was none.
    uint64_t generation = 0;
    std::unique_ptr<File> file;
    // The header page and the slot.
    std::array<MutableBytes, 2> buffers;
  };

  void Run();
  std::vector<Job> TakeJobs();
  absl::Status OpenJob(Job& job, std::byte* header_page);
  // Checks what was read, and puts a tail's tokens where they belong.
  absl::Status Verify(const Job& job, size_t bytes);
  void Finish(Job& job, const absl::Status& status);
  // The entry cannot be loaded: it leaves the index. Returns what to say.
  absl::Status GiveUp(const Job& job, const absl::Status& status);

  const std::shared_ptr<StoreState> state_;
  const std::shared_ptr<BlockWriter> writer_;
  std::deque<cache::LoadRequest> queue_ ABSL_GUARDED_BY(state_->mutex);
  size_t running_jobs_ ABSL_GUARDED_BY(state_->mutex) = 0;
  size_t scheduled_tasks_ ABSL_GUARDED_BY(state_->mutex) = 0;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_BLOCK_READER_H_
