// Reads old blocks again, slowly, so that damage is found before somebody needs
// the block. What is damaged is set aside, and the cache hears of it, as it
// does of what somebody has removed. What cannot be read just now stays, and is
// read again in the next pass.
//
// Threads:  Tick() from any; files are read by tasks of its executor alone.
// Not here: when to tick (cli/); what is done with a damaged file
//           (block_writer.h).
#ifndef EVERWARM_STORE_SCRUBBER_H_
#define EVERWARM_STORE_SCRUBBER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/repeated_warning.h"
#include "store/block_writer.h"
#include "store/store_state.h"

namespace everwarm::store {

class Scrubber : public std::enable_shared_from_this<Scrubber> {
 public:
  // Reads options.scrub_bytes_per_second on average; 0: nothing.
  Scrubber(std::shared_ptr<StoreState> state,
           std::shared_ptr<BlockWriter> writer);

  // Lets as much be read as has come due since the last call, a second's worth
  // at most. Never waits.
  void Tick();

 private:
  // One block a task.
  void Run();
  // The next file of this pass over the directory, or of a new one; empty when
  // there is none.
  std::string NextName();
  // Returns what it read.
  uint64_t Read(const std::string& name);
  // The file of this entry was not what it should be.
  void Fail(const FileId& id, uint64_t generation, const absl::Status& why);
  void Schedule();

  const std::shared_ptr<StoreState> state_;
  const std::shared_ptr<BlockWriter> writer_;

  // Bytes that may be read; below 0 after a block that was larger.
  int64_t due_ ABSL_GUARDED_BY(state_->mutex) = 0;
  Clock::Monotonic ticked_at_ ABSL_GUARDED_BY(state_->mutex);
  bool scheduled_ ABSL_GUARDED_BY(state_->mutex) = false;

  // Its tasks only, one at a time.
  std::vector<std::string> names_;
  RepeatedWarning unread_;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_SCRUBBER_H_
