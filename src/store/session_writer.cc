#include "store/session_writer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/own_directory.h"
#include "store/session_file.h"

namespace everwarm::store {

SessionWriter::SessionWriter(std::shared_ptr<StoreState> state,
                             DiskBudget* budget)
    : state_(std::move(state)),
      budget_(*budget),
      not_kept_("sessions were not kept", state_->parts.clock,
                state_->parts.logger) {}

void SessionWriter::Add(cache::SessionRecord record,
                        std::vector<cache::RecordId> replaces) {
  const cache::RecordId id = record.id();
  const auto gone = [&](const Pending& waiting) {
    const cache::RecordId other = waiting.record.id();
    if (other != id &&
        std::find(replaces.begin(), replaces.end(), other) == replaces.end()) {
      return false;
    }
    replaces.insert(replaces.end(), waiting.replaces.begin(),
                    waiting.replaces.end());
    return true;
  };
  // By hand: what goes adds to what the others are compared with.
  for (auto it = queue_.begin(); it != queue_.end();) {
    it = gone(*it) ? queue_.erase(it) : std::next(it);
  }
  std::erase(replaces, id);
  if (queue_.size() < state_->options.max_queued_stores &&
      record.path.size() <= kMaxSessionNodes) {
    queue_.push_back({std::move(record), std::move(replaces)});
  }
}

std::vector<SessionWriter::Pending> SessionWriter::Take() {
  return std::exchange(queue_, {});
}

void SessionWriter::Write(std::vector<Pending> sessions,
                          const absl::flat_hash_set<NodeId>& keep) {
  std::vector<Item> items;
  for (Pending& session : sessions) {
    if (state_->IsClosing()) {
      return;
    }
    Item item;
    item.id = session.record.id();
    item.replaces = std::move(session.replaces);
    if (Touch(item.id)) {
      Remove(item.replaces);
      continue;
    }
    item.status = WriteTemp(item, session.record, keep);
    items.push_back(std::move(item));
  }
  if (items.empty() || !Rename(items)) {
    return;
  }
  // Before what was reserved for it is given back.
  budget_.CountDirectories();
  size_t failed = 0;
  absl::Status first_failure;
  for (const Item& item : items) {
    if (item.status.ok()) {
      Commit(item);
      Remove(item.replaces);
    } else {
      ++failed;
      first_failure.Update(item.status);
      Undo(item);
    }
  }
  if (failed > 0) {
    not_kept_.Add(failed, first_failure.ToString());
  } else {
    not_kept_.Recovered();
  }
}

void SessionWriter::Refuse(size_t sessions, const absl::Status& why) {
  if (sessions > 0) {
    not_kept_.Add(sessions, why.ToString());
  }
}

bool SessionWriter::Touch(const cache::RecordId& id) {
  const FileId file{kOwnDir, SessionKey(id)};
  const Clock::Wall now = state_->parts.clock->WallNow();
  {
    MutexLock lock(state_->mutex);
    if (state_->index.Find(file) == nullptr) {
      return false;
    }
    if (!state_->MarkUsed(file, state_->index.NextUse(now), now)) {
      return true;
    }
  }
  const absl::Status status =
      state_->parts.env->SetModified(state_->PathOf(file), now);
  if (!status.ok()) {
    state_->parts.logger->debug("{}", status.ToString());
  }
  return true;
}

absl::Status SessionWriter::WriteTemp(Item& item,
                                      const cache::SessionRecord& record,
                                      const absl::flat_hash_set<NodeId>& keep) {
  const size_t bytes = SessionFileBytes(record.path.size());
  EW_RETURN_IF_ERROR(budget_.Reserve(bytes + kMetadataBytes, keep));
  item.reserved = bytes + kMetadataBytes;
  const AlignedBuffer buffer =
      EncodeSession({state_->options.fingerprint, record});
  const std::string path =
      state_->TempPath(absl::StrCat("session-", next_temp_++));
  EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file,
                      CreateOwnFile(*state_, path));
  item.temp_path = path;
  const std::array<ConstBytes, 1> whole = {ConstBytes(buffer.data(), bytes)};
  EW_RETURN_IF_ERROR(file->WriteAt(0, whole));
  if (state_->IsClosing()) {
    return absl::CancelledError("the store is closing");
  }
  EW_RETURN_IF_ERROR(file->Sync());
  EW_ASSIGN_OR_RETURN(const FileInfo info, file->Stat());
  item.allocated = info.allocated;
  return absl::OkStatus();
}

bool SessionWriter::Rename(std::vector<Item>& items) {
  Env& env = *state_->parts.env;
  bool any = false;
  for (Item& item : items) {
    if (state_->IsClosing()) {
      return false;
    }
    if (item.status.ok()) {
      item.status = env.Rename(item.temp_path,
                               state_->PathOf({kOwnDir, SessionKey(item.id)}));
      item.renamed = item.status.ok();
      any = any || item.renamed;
    }
  }
  if (!any) {
    return true;
  }
  if (state_->IsClosing()) {
    return false;
  }
  const absl::Status synced = env.SyncDir(state_->own_dir);
  for (Item& item : items) {
    item.status.Update(synced);
  }
  return true;
}

void SessionWriter::Commit(const Item& item) {
  const FileId file{kOwnDir, SessionKey(item.id)};
  const Clock::Wall now = state_->parts.clock->WallNow();
  MutexLock lock(state_->mutex);
  // The rename took the place of whatever had this name.
  if (const auto replaced = state_->index.RemoveLoose(state_->PathOf(file))) {
    state_->index.Settle(replaced->bytes);
  }
  state_->index.Add({.id = file,
                     .last_used = state_->index.NextUse(now),
                     .file_time = now,
                     .bytes = item.allocated});
  state_->index.Release(item.reserved);
}

void SessionWriter::Undo(const Item& item) {
  if (state_->IsClosing()) {
    return;
  }
  budget_.Discard(item.renamed ? state_->PathOf({kOwnDir, SessionKey(item.id)})
                               : item.temp_path,
                  item.reserved);
  budget_.Release(item.reserved);
}

void SessionWriter::Remove(const std::vector<cache::RecordId>& records) {
  for (const cache::RecordId& id : records) {
    if (state_->IsClosing()) {
      return;
    }
    const FileId file{kOwnDir, SessionKey(id)};
    uint64_t bytes = 0;
    {
      MutexLock lock(state_->mutex);
      const IndexEntry* const entry = state_->index.Find(file);
      if (entry == nullptr) {
        continue;
      }
      bytes = entry->bytes;
      state_->index.Remove(file);
    }
    budget_.RemoveFile(state_->PathOf(file), bytes);
  }
}

}  // namespace everwarm::store
