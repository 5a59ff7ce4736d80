#include "store/block_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/block_file.h"
#include "store/own_directory.h"

namespace everwarm::store {
BlockWriter::BlockWriter(std::shared_ptr<StoreState> state)
    : state_(std::move(state)),
      budget_(state_.get()),
      sessions_(state_, &budget_),
      header_page_(kHeaderBytes),
      not_stored_("blocks were not stored", state_->parts.clock,
                  state_->parts.logger) {}

absl::Status BlockWriter::Enqueue(cache::StoreRequest request) {
  const StoreOptions& options = state_->options;
  const BlockKey key = request.identity.key;
  if (key.group >= options.groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no layer group ", key.group));
  }
  const uint64_t tokens = request.identity.tokens.size();
  const BlockGeometry& geometry = state_->SchemeOf(request.identity).geometry;
  const uint64_t bytes =
      kHeaderBytes +
      AlignUp(geometry.PayloadBytes(static_cast<uint32_t>(tokens)),
              kSlotAlignment);
  bool schedule = false;
  {
    MutexLock lock(state_->mutex);
    if (state_->closing) {
      return absl::UnavailableError("the store is closing");
    }
    // What is durable is not written again; what is being evicted may be not.
    const FileId id{kOwnDir, key};
    const IndexEntry* const entry = state_->index.Find(id);
    if (entry != nullptr && state_->evicting != id) {
      state_->AddEvents({cache::StoredEvent{key, entry->bytes}});
    } else {
      const bool empty = queue_.empty();
      if (queue_.size() >= options.max_queued_stores ||
          (!empty &&
           bytes > options.max_queued_bytes -
                       std::min(queued_bytes_, options.max_queued_bytes))) {
        return absl::ResourceExhaustedError(
            absl::StrCat("write queue is full: ", queue_.size(), " blocks, ",
                         queued_bytes_, " bytes"));
      }
      auto store = std::make_shared<PendingStore>();
      store->request = std::move(request);
      store->bytes = bytes;
      queued_bytes_ += bytes;
      queue_.push_back(std::move(store));
      ScheduleLocked(schedule);
    }
  }
  if (schedule) {
    Schedule();
  } else {
    state_->WakeUp();
  }
  return absl::OkStatus();
}

std::vector<BlockKey> BlockWriter::TakeBack() {
  // Shares of blocks are dropped after the lock.
  std::deque<std::shared_ptr<PendingStore>> taken;
  {
    MutexLock lock(state_->mutex);
    taken.swap(queue_);
    queued_bytes_ = 0;
  }
  std::vector<BlockKey> keys;
  keys.reserve(taken.size());
  for (const std::shared_ptr<PendingStore>& store : taken) {
    keys.push_back(store->request.identity.key);
  }
  return keys;
}

void BlockWriter::Cancel(const BlockKey& key) {
  // Shares of blocks are dropped after the lock.
  std::vector<std::shared_ptr<PendingStore>> dropped;
  MutexLock lock(state_->mutex);
  for (auto it = queue_.begin(); it != queue_.end();) {
    if ((*it)->request.identity.key == key) {
      queued_bytes_ -= (*it)->bytes;
      dropped.push_back(std::move(*it));
      it = queue_.erase(it);
    } else {
      ++it;
    }
  }
  for (const std::shared_ptr<PendingStore>& store : running_) {
    if (store->request.identity.key == key) {
      store->cancelled = true;
    }
  }
}

void BlockWriter::QueueRemoval(const FileId& id, uint64_t bytes,
                               absl::Status why) {
  bool schedule = false;
  {
    MutexLock lock(state_->mutex);
    removals_.push_back({id, bytes, std::move(why)});
    ScheduleLocked(schedule);
  }
  if (schedule) {
    Schedule();
  }
}

void BlockWriter::QueueTouch(const FileId& id, Clock::Wall time) {
  bool schedule = false;
  {
    MutexLock lock(state_->mutex);
    touches_.push_back({id, time});
    ScheduleLocked(schedule);
  }
  if (schedule) {
    Schedule();
  }
}

void BlockWriter::QueueSession(cache::SessionRecord record,
                               std::vector<cache::RecordId> replaces) {
  bool schedule = false;
  {
    MutexLock lock(state_->mutex);
    sessions_.Add(std::move(record), std::move(replaces));
    ScheduleLocked(schedule);
  }
  if (schedule) {
    Schedule();
  }
}

bool BlockWriter::GiveUp(const FileId& id, uint64_t generation,
                         const absl::Status& why) {
  const bool damaged = IsDamage(why);
  uint64_t bytes = 0;
  {
    MutexLock lock(state_->mutex);
    const IndexEntry* const entry = state_->index.Find(id);
    if (entry == nullptr || entry->generation != generation ||
        (absl::IsNotFound(why) && state_->evicting == id)) {
      return false;
    }
    bytes = entry->bytes;
    state_->index.Remove(id);
    if (damaged) {
      ++state_->counters.damaged;
    } else {
      state_->index.Settle(bytes);
      if (!absl::IsNotFound(why)) {
        state_->index.AddLoose(
            {state_->PathOf(id), bytes, state_->parts.clock->WallNow()});
      }
    }
  }
  if (damaged) {
    QueueRemoval(id, bytes, why);
  }
  return true;
}

void BlockWriter::Clear() {
  std::deque<std::shared_ptr<PendingStore>> dropped;
  std::vector<std::shared_ptr<PendingStore>> undone;
  MutexLock lock(state_->mutex);
  dropped.swap(queue_);
  undone.swap(running_);
  removals_.clear();
  touches_.clear();
  sessions_.Clear();
  queued_bytes_ = 0;
}

void BlockWriter::AddStats(cache::TierStats& stats) const {
  MutexLock lock(state_->mutex);
  for (const auto& store : queue_) {
    stats.pending_store_bytes += store->bytes;
  }
  stats.pending_stores += queue_.size();
  for (const auto& store : running_) {
    if (!store->cancelled) {
      ++stats.pending_stores;
      stats.pending_store_bytes += store->bytes;
    }
  }
}

void BlockWriter::ScheduleLocked(bool& schedule) {
  schedule = !scheduled_ && !state_->closing;
  scheduled_ = scheduled_ || schedule;
}

void BlockWriter::Schedule() {
  state_->parts.writers->Schedule([self = shared_from_this()] { self->Run(); });
}

void BlockWriter::Run() {
  const RunningTask task(*state_);
  if (!task.ok()) {
    return;
  }
  Work work = TakeWork();
  if (const absl::Status held = HoldDirectory(*state_); held.ok()) {
    Remove(work.removals);
    SetTimes(work.touches);
    sessions_.Write(std::move(work.sessions), work.keep);
  } else {
    Refuse(work, held);
  }
  if (!work.finished.empty()) {
    work.finished.clear();
    state_->WakeUp();
  }
  WriteBatch(work);
  bool again = false;
  {
    MutexLock lock(state_->mutex);
    scheduled_ = false;
    if (!queue_.empty() || !removals_.empty() || !touches_.empty() ||
        !sessions_.empty()) {
      ScheduleLocked(again);
    }
  }
  if (again) {
    Schedule();
  }
}

BlockWriter::Work BlockWriter::TakeWork() {
  Work work;
  MutexLock lock(state_->mutex);
  work.removals.swap(removals_);
  work.touches.swap(touches_);
  work.sessions = sessions_.Take();
  TakeBatch(work);
  return work;
}

void BlockWriter::TakeBatch(Work& work) {
  const StoreOptions& options = state_->options;
  absl::flat_hash_set<BlockKey> keys;
  uint64_t bytes = 0;
  while (!queue_.empty() && work.items.size() < options.max_batch_blocks) {
    const std::shared_ptr<PendingStore>& next = queue_.front();
    const BlockKey& key = next->request.identity.key;
    if (const IndexEntry* entry = state_->index.Find({kOwnDir, key})) {
      // Asked for twice, and done the first time.
      state_->AddEvents({cache::StoredEvent{key, entry->bytes}});
      work.finished.push_back(next);
      queued_bytes_ -= next->bytes;
      queue_.pop_front();
      continue;
    }
    if (!work.items.empty() && bytes + next->bytes > options.max_batch_bytes) {
      break;
    }
    if (!keys.insert(key).second) {
      break;  // The next batch finds it done, or tries again.
    }
    queued_bytes_ -= next->bytes;
    bytes += next->bytes;
    Item item;
    item.store = next;
    item.final_path = state_->PathOf({kOwnDir, key});
    work.items.push_back(std::move(item));
    running_.push_back(next);
    queue_.pop_front();
  }
  std::stable_sort(work.items.begin(), work.items.end(),
                   [](const Item& a, const Item& b) {
                     return a.store->request.identity.start <
                            b.store->request.identity.start;
                   });
  for (const Item& item : work.items) {
    work.keep.insert(item.store->request.identity.parent);
    work.keep.insert(item.store->request.identity.key.node);
  }
  for (const auto& store : queue_) {
    work.keep.insert(store->request.identity.parent);
  }
}

void BlockWriter::Refuse(Work& work, const absl::Status& why) {
  const Clock::Wall now = state_->parts.clock->WallNow();
  {
    MutexLock lock(state_->mutex);
    for (const Removal& removal : work.removals) {
      // As far as anybody here can tell it is still there.
      state_->index.Settle(removal.bytes);
      state_->index.AddLoose({state_->PathOf(removal.id), removal.bytes, now});
    }
  }
  sessions_.Refuse(work.sessions.size(), why);
  for (Item& item : work.items) {
    item.status = why;
  }
}

void BlockWriter::Remove(const std::vector<Removal>& removals) {
  bool set_aside = false;
  for (const Removal& removal : removals) {
    if (state_->IsClosing()) {
      return;
    }
    const std::string path = state_->PathOf(removal.id);
    if (removal.why.ok()) {
      budget_.RemoveFile(path, removal.bytes);
    } else {
      budget_.SetAside(path, removal.bytes, removal.why);
      set_aside = true;
    }
  }
  if (set_aside) {
    // Names came into damaged/, and it may have grown.
    budget_.CountDirectories();
  }
}

void BlockWriter::SetTimes(const std::vector<Touch>& touches) {
  for (const Touch& touch : touches) {
    if (state_->IsClosing()) {
      return;
    }
    const std::string path = state_->PathOf(touch.id);
    const absl::Status status =
        state_->parts.env->SetModified(path, touch.time);
    if (!status.ok() && !absl::IsNotFound(status)) {
      state_->parts.logger->debug("{}", status.ToString());
    }
  }
}

bool BlockWriter::Cancelled(const Item& item) const {
  MutexLock lock(state_->mutex);
  return item.store->cancelled;
}

void BlockWriter::WriteBatch(Work& work) {
  if (work.items.empty()) {
    return;
  }
  if (!WriteItems(work)) {
    // They stay pending, which is what they are. Nothing is undone: that would
    // be as many calls again to a disk that perhaps does not answer.
    for (Item& item : work.items) {
      item.store->request.block = cache::BlockRef();
    }
    return;
  }
  if (!state_->IsClosing()) {
    budget_.CountDirectories();
  }
  Commit(work.items);
}

bool BlockWriter::WriteItems(Work& work) {
  for (Item& item : work.items) {
    if (state_->IsClosing()) {
      return false;
    }
    if (Cancelled(item)) {
      item.status = absl::CancelledError("removed");
    } else if (item.status.ok()) {
      item.status = WriteTemp(item, work.keep);
    }
    RememberRoom(item.store->request.identity.key, item.status);
  }
  for (Item& item : work.items) {
    if (state_->IsClosing()) {
      return false;
    }
    if (item.status.ok()) {
      item.status = SyncItem(item);
    }
    item.file.reset();
  }
  for (Item& item : work.items) {
    if (state_->IsClosing()) {
      return false;
    }
    if (item.status.ok()) {
      RenameItem(item);
    }
  }
  if (state_->IsClosing()) {
    return false;
  }
  SyncDirectory(work.items);
  return true;
}

void BlockWriter::RememberRoom(const BlockKey& key,
                               const absl::Status& status) {
  // An engine that never hears of these again leaves them here; starting over
  // costs a few useless writes.
  constexpr size_t kMostRemembered = 65536;
  if (absl::IsResourceExhausted(status)) {
    if (no_room_.size() >= kMostRemembered) {
      no_room_.clear();
    }
    no_room_.insert(key);
  } else {
    no_room_.erase(key);
  }
}

absl::Status BlockWriter::WriteTemp(Item& item,
                                    const absl::flat_hash_set<NodeId>& keep) {
  const cache::StoreRequest& request = item.store->request;
  BlockHeader header;
  header.identity = request.identity;
  header.fingerprint = state_->options.fingerprint;
  header.scheme = state_->SchemeOf(request.identity);
  const BlockGeometry& geometry = header.scheme.geometry;

  if (no_room_.contains(
          {request.identity.parent, request.identity.key.group}) &&
      !budget_.Fits(item.store->bytes + kMetadataBytes)) {
    return absl::ResourceExhaustedError(
        "there was no room for the block before it");
  }
  EW_RETURN_IF_ERROR(budget_.Reserve(item.store->bytes + kMetadataBytes, keep));
  item.reserved = item.store->bytes + kMetadataBytes;

  const size_t padded = header.padded_payload_bytes();
  const std::byte* payload = request.block->data();
  if (!header.full()) {
    // Behind the tail's tokens the engine may be writing: they are not touched.
    bounce_.Resize(padded);
    geometry.Pack(payload, header.num_tokens(), bounce_.data());
    std::memset(bounce_.data() + header.payload_bytes(), 0,
                padded - header.payload_bytes());
    payload = bounce_.data();
  }
  header.checksum = ChecksumPayload({payload, header.payload_bytes()});
  EW_RETURN_IF_ERROR(EncodeHeader(header, header_page_.data()));
  const std::array<ConstBytes, 2> bytes = {
      ConstBytes(header_page_.data(), kHeaderBytes),
      ConstBytes(payload, padded)};

  absl::Status status = WriteFile(item, bytes);
  if (absl::IsResourceExhausted(status) &&
      budget_.Evict(item.reserved, keep).ok()) {
    status = WriteFile(item, bytes);
  }
  return status;
}

absl::Status BlockWriter::WriteFile(Item& item,
                                    absl::Span<const ConstBytes> bytes) {
  if (state_->IsClosing()) {
    return absl::CancelledError("the store is closing");
  }
  const std::string path = state_->TempPath(absl::StrCat(next_temp_++));
  EW_ASSIGN_OR_RETURN(std::unique_ptr<File> file, CreateOwnFile(*state_, path));
  item.temp_path = path;
  if (state_->IsClosing()) {
    return absl::CancelledError("the store is closing");
  }
  const absl::Status status = file->WriteAt(0, bytes);
  if (!status.ok()) {
    file.reset();
    Undo(item);
    item.temp_path.clear();
    return status;
  }
  item.file = std::move(file);
  return absl::OkStatus();
}

absl::Status BlockWriter::SyncItem(Item& item) {
  EW_RETURN_IF_ERROR(item.file->Sync());
  if (state_->IsClosing()) {
    return absl::CancelledError("the store is closing");
  }
  EW_ASSIGN_OR_RETURN(const FileInfo info, item.file->Stat());
  item.allocated = info.allocated;
  return absl::OkStatus();
}

void BlockWriter::RenameItem(Item& item) {
  if (Cancelled(item)) {
    item.status = absl::CancelledError("removed");
    return;
  }
  item.status = state_->parts.env->Rename(item.temp_path, item.final_path);
  item.renamed = item.status.ok();
}

void BlockWriter::SyncDirectory(std::vector<Item>& items) {
  const bool any = std::any_of(items.begin(), items.end(),
                               [](const Item& item) { return item.renamed; });
  if (!any) {
    return;
  }
  const absl::Status status = state_->parts.env->SyncDir(state_->own_dir);
  for (Item& item : items) {
    if (item.renamed && !status.ok()) {
      item.status = status;
    }
  }
}

void BlockWriter::Undo(const Item& item) {
  if (state_->IsClosing()) {
    return;
  }
  budget_.Discard(item.renamed ? item.final_path : item.temp_path,
                  item.reserved);
}

void BlockWriter::Commit(std::vector<Item>& items) {
  // The writer's shares go before anybody hears that it is done with them.
  for (Item& item : items) {
    item.store->request.block = cache::BlockRef();
  }
  std::vector<Item*> undo;
  {
    MutexLock lock(state_->mutex);
    for (Item& item : items) {
      if (item.status.ok() && !item.store->cancelled) {
        CommitItem(item);
      } else {
        undo.push_back(&item);
      }
    }
    // Those to be undone stay listed, so that Remove() still finds them.
    std::erase_if(running_, [&](const std::shared_ptr<PendingStore>& store) {
      return std::none_of(undo.begin(), undo.end(), [&](const Item* item) {
        return item->store == store;
      });
    });
  }
  for (const Item* item : undo) {
    Undo(*item);
  }
  size_t failed = 0;
  absl::Status first_failure;
  std::vector<cache::TierEvent> events;
  {
    MutexLock lock(state_->mutex);
    running_.clear();
    for (const Item* item : undo) {
      state_->index.Release(item->reserved);
      if (!item->store->cancelled) {
        ++failed;
        first_failure.Update(item->status);
        events.push_back(cache::StoreFailedEvent{
            item->store->request.identity.key, item->status});
      }
    }
    state_->counters.failed_stores += failed;
    state_->AddEvents(std::move(events));
  }
  if (failed > 0) {
    not_stored_.Add(failed, first_failure.ToString());
  } else if (undo.size() < items.size()) {
    not_stored_.Recovered();
  }
  state_->WakeUp();
}

void BlockWriter::CommitItem(const Item& item) {
  const cache::BlockIdentity& identity = item.store->request.identity;
  const Clock::Wall now = state_->parts.clock->WallNow();
  // The rename took the place of whatever had this name.
  if (const auto replaced = state_->index.RemoveLoose(item.final_path)) {
    state_->index.Settle(replaced->bytes);
  }
  state_->index.Add({.id = {kOwnDir, identity.key},
                     .parent = identity.parent,
                     .is_state = state_->SchemeOf(identity).geometry.is_state(),
                     .last_used = state_->index.NextUse(now),
                     .file_time = now,
                     .bytes = item.allocated});
  state_->index.Release(item.reserved);
  ++state_->counters.stored;
  state_->counters.stored_bytes += item.allocated;
  state_->AddEvents({cache::StoredEvent{identity.key, item.allocated}});
}

}  // namespace everwarm::store
