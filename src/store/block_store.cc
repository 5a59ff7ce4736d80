#include "store/block_store.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/block_reader.h"
#include "store/block_writer.h"
#include "store/scrubber.h"
#include "store/store_scan.h"
#include "store/store_state.h"

namespace everwarm::store {

absl::StatusOr<OpenedStore> BlockStore::Open(StoreOptions options,
                                             StoreParts parts) {
  EW_RETURN_IF_ERROR(options.Validate());
  auto state =
      std::make_shared<StoreState>(std::move(options), std::move(parts));
  OpenedStore opened;
  EW_ASSIGN_OR_RETURN(FoundInDirectory found, OpenDirectory(*state));
  opened.entries = std::move(found.entries);
  opened.sessions = std::move(found.sessions);
  opened.store.reset(new BlockStore(std::move(state)));
  return opened;
}

BlockStore::BlockStore(std::shared_ptr<StoreState> state)
    : state_(std::move(state)),
      writer_(std::make_shared<BlockWriter>(state_)),
      reader_(std::make_shared<BlockReader>(state_, writer_)),
      scrubber_(std::make_shared<Scrubber>(state_, writer_)) {}

void BlockStore::BeginClosing() {
  MutexLock lock(state_->mutex);
  state_->closing = true;
}

BlockStore::~BlockStore() {
  BeginClosing();
  {
    MutexLock lock(state_->mutex);
    while (state_->running_tasks > 0) {
      state_->task_ended.Wait(state_->mutex);
    }
  }
  // Shares of blocks must not outlive the pool in a task that nobody runs.
  writer_->Clear();
  reader_->Clear();
  std::vector<cache::TierEvent> events;
  {
    MutexLock lock(state_->mutex);
    events.swap(state_->events);
    state_->wake_up = nullptr;
  }
  state_->directory_lock.reset();
}

absl::Status BlockStore::Store(cache::StoreRequest request) {
  return writer_->Enqueue(std::move(request));
}

std::vector<BlockKey> BlockStore::TakeBackStores() {
  return writer_->TakeBack();
}

void BlockStore::Load(cache::LoadRequest request) {
  reader_->Enqueue(std::move(request));
}

void BlockStore::Keep(cache::SessionRecord record,
                      std::vector<cache::RecordId> replaces) {
  writer_->QueueSession(std::move(record), std::move(replaces));
}

void BlockStore::Remove(const BlockKey& key) {
  writer_->Cancel(key);
  const FileId id{kOwnDir, key};
  uint64_t bytes = 0;
  bool found = false;
  {
    MutexLock lock(state_->mutex);
    // Of what was forgotten there is nothing to say.
    std::erase_if(state_->events, [&](const cache::TierEvent& event) {
      const auto* stored = std::get_if<cache::StoredEvent>(&event);
      const auto* failed = std::get_if<cache::StoreFailedEvent>(&event);
      return (stored != nullptr && stored->key == key) ||
             (failed != nullptr && failed->key == key);
    });
    if (const IndexEntry* entry = state_->index.Find(id)) {
      bytes = entry->bytes;
      found = state_->index.Remove(id);
    }
  }
  if (found) {
    writer_->QueueRemoval(id, bytes, absl::OkStatus());
  }
}

void BlockStore::Touch(absl::Span<const BlockKey> keys) {
  const Clock::Wall now = state_->parts.clock->WallNow();
  std::vector<FileId> due;
  {
    MutexLock lock(state_->mutex);
    // Ancestors, which follow, count as used a little later than their leaf.
    Clock::Wall time = state_->index.NextUse(now);
    for (const BlockKey& key : keys) {
      const FileId id{kOwnDir, key};
      if (state_->index.Find(id) == nullptr) {
        continue;
      }
      if (state_->MarkUsed(id, time, now)) {
        due.push_back(id);
      }
      time += Clock::Wall::duration(1);
    }
  }
  for (const FileId& id : due) {
    writer_->QueueTouch(id, now);
  }
}

std::vector<cache::TierEvent> BlockStore::TakeEvents() {
  std::vector<cache::TierEvent> events;
  MutexLock lock(state_->mutex);
  events.swap(state_->events);
  return events;
}

void BlockStore::SetWakeUp(std::function<void()> wake_up) {
  MutexLock lock(state_->mutex);
  state_->wake_up = std::move(wake_up);
}

void BlockStore::Tick() { scrubber_->Tick(); }

cache::TierStats BlockStore::stats() const {
  cache::TierStats stats;
  {
    MutexLock lock(state_->mutex);
    stats = state_->counters;
    stats.entries = state_->index.own_blocks();
    stats.bytes = state_->index.bytes();
  }
  stats.enabled = true;
  stats.max_bytes = state_->options.max_bytes;
  writer_->AddStats(stats);
  reader_->AddStats(stats);
  return stats;
}

}  // namespace everwarm::store
