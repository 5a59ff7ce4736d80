// The cold tier over files: one file for each block, named by what it is.
//
// Files are the database. What a scan of headers finds at the start is what
// there is; nothing else is kept. A block that was announced as stored survives
// power loss; a block that was announced as loaded is, bit for bit and token
// for token, what was asked for.
//
// Threads:  as cache::Tier and cache::SessionKeeper. Files are touched on the
// executors alone, except in
//           Open().
// Owns:     the directory, by a lock, and a share of each block until its file
// is
//           durable.
// Blocks:   Open() for as long as the scan takes; the destructor for the calls
//           to the disk that run. Other calls never.
// Errors:   Open(): kFailedPrecondition, another process has the directory;
// else
//           the directory cannot be used. Damaged files are no error.
// Not here: which blocks to store (cache/), the bytes of a file (block_file.h).
#ifndef EVERWARM_STORE_BLOCK_STORE_H_
#define EVERWARM_STORE_BLOCK_STORE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/session_record.h"
#include "cache/tier.h"
#include "store/store_options.h"

namespace everwarm::store {

class BlockReader;
class BlockWriter;
class Scrubber;
struct OpenedStore;
struct StoreState;

class BlockStore final : public cache::Tier, public cache::SessionKeeper {
 public:
  // Locks and scans the directory, tidies what dead processes left, sets
  // damaged files aside, and keeps the cap. Needs no task of an executor.
  static absl::StatusOr<OpenedStore> Open(StoreOptions options,
                                          StoreParts parts);
  // As BeginClosing(), and waits for the tasks that run: each for the one call
  // to the disk that it is in.
  ~BlockStore() override;
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  absl::Status Store(cache::StoreRequest request) override;
  std::vector<BlockKey> TakeBackStores() override;
  void Load(cache::LoadRequest request) override;
  void Remove(const BlockKey& key) override;
  void Touch(absl::Span<const BlockKey> keys) override;
  std::vector<cache::TierEvent> TakeEvents() override;
  void SetWakeUp(std::function<void()> wake_up) override;
  cache::TierStats stats() const override;
  void Keep(cache::SessionRecord record,
            std::vector<cache::RecordId> replaces) override;

  // Any thread. From now on nothing is stored, read or removed, and what runs
  // stops between two calls to the disk. What was not durable then is not
  // announced, and stays pending: flush first.
  void BeginClosing();

  // Any thread. What is done at its own pace, beside all else: to be called
  // about twice a second.
  void Tick();

 private:
  explicit BlockStore(std::shared_ptr<StoreState> state);

  const std::shared_ptr<StoreState> state_;
  const std::shared_ptr<BlockWriter> writer_;
  const std::shared_ptr<BlockReader> reader_;
  const std::shared_ptr<Scrubber> scrubber_;
};

struct OpenedStore {
  std::unique_ptr<BlockStore> store;
  // Of our fingerprint, parents before children.
  std::vector<cache::TierEntry> entries;
  // Of our fingerprint, those of which some block is there.
  std::vector<cache::SessionEntry> sessions;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_BLOCK_STORE_H_
