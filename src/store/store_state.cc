#include "store/store_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "store/directory_layout.h"
#include "store/session_file.h"

namespace everwarm::store {

absl::Status StoreOptions::Validate() const {
  if (dir.empty()) {
    return absl::InvalidArgumentError("cache directory is not named");
  }
  if (groups.empty() || groups.size() > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(groups.size(), " layer groups"));
  }
  uint32_t block_tokens = 0;
  for (const BySpan<GroupScheme>& group : groups) {
    for (const GroupScheme* scheme : {&group.At(0), &group.rest}) {
      EW_RETURN_IF_ERROR(ValidateScheme(*scheme));
      const BlockGeometry& geometry = scheme->geometry;
      if (geometry.is_state() && group.first_spans == 0) {
        continue;
      }
      if (block_tokens != 0 && geometry.block_tokens() != block_tokens) {
        return absl::InvalidArgumentError("groups differ in tokens of a block");
      }
      block_tokens = geometry.block_tokens();
    }
  }
  if (max_bytes == 0 || max_queued_stores == 0 || max_batch_blocks == 0 ||
      reader_tasks == 0 || reads_in_flight == 0) {
    return absl::InvalidArgumentError("a limit of the store is zero");
  }
  return absl::OkStatus();
}

StoreState::StoreState(StoreOptions store_options, StoreParts store_parts)
    : options(std::move(store_options)),
      parts(std::move(store_parts)),
      own_dir(absl::StrCat(options.dir, "/", options.fingerprint.hex())),
      damaged_dir(absl::StrCat(options.dir, "/", kDamagedDirName)),
      temp_stem(absl::StrCat(
          absl::Hex(parts.env->UniqueNumber(), absl::kZeroPad16), "-")) {}

std::string StoreState::PathOf(const FileId& id) const {
  const std::string& dir =
      id.dir == kOwnDir ? own_dir : foreign[id.dir - 1].path;
  return absl::StrCat(dir, "/",
                      IsSession(id.key) ? SessionFileName(id.key.node.digest)
                                        : BlockFileName(id.key));
}

std::string StoreState::TempPath(std::string_view rest) const {
  return absl::StrCat(own_dir, "/",
                      TempName(std::string(temp_stem).append(rest)));
}

bool StoreState::IsClosing() const {
  MutexLock lock(mutex);
  return closing;
}

bool StoreState::MarkUsed(const FileId& id, Clock::Wall used, Clock::Wall now) {
  const Clock::Wall file_time = index.Find(id)->file_time;
  index.SetLastUsed(id, used);
  // A file time in the future says nothing and is put right.
  if (file_time <= now && now - file_time < options.touch_interval) {
    return false;
  }
  index.SetFileTime(id, now);
  return true;
}

void StoreState::AddEvents(std::vector<cache::TierEvent> new_events) {
  std::move(new_events.begin(), new_events.end(), std::back_inserter(events));
}

void StoreState::WakeUp() {
  std::function<void()> call;
  {
    MutexLock lock(mutex);
    if (!events.empty()) {
      call = wake_up;
    }
  }
  if (call) {
    call();
  }
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

RunningTask::RunningTask(StoreState& state) : state_(state) {
  MutexLock lock(state_.mutex);
  ok_ = !state_.closing;
  state_.running_tasks += ok_ ? 1 : 0;
}

RunningTask::~RunningTask() {
  if (!ok_) {
    return;
  }
  MutexLock lock(state_.mutex);
  --state_.running_tasks;
  state_.task_ended.NotifyAll();
}

}  // namespace everwarm::store
