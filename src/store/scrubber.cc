#include "store/scrubber.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "store/block_file.h"
#include "store/inspect.h"

namespace everwarm::store {

Scrubber::Scrubber(std::shared_ptr<StoreState> state,
                   std::shared_ptr<BlockWriter> writer)
    : state_(std::move(state)),
      writer_(std::move(writer)),
      ticked_at_(state_->parts.clock->Now()),
      unread_("stored blocks could not be read again", state_->parts.clock,
              state_->parts.logger) {}

void Scrubber::Tick() {
  const auto rate =
      static_cast<int64_t>(state_->options.scrub_bytes_per_second);
  {
    MutexLock lock(state_->mutex);
    const Clock::Monotonic now = state_->parts.clock->Now();
    const double seconds =
        std::chrono::duration<double>(now - ticked_at_).count();
    ticked_at_ = now;
    // A machine that slept does not make up for it.
    due_ = std::min(
        rate, due_ + static_cast<int64_t>(static_cast<double>(rate) * seconds));
    if (due_ <= 0 || scheduled_ || state_->closing) {
      return;
    }
    scheduled_ = true;
  }
  Schedule();
}

void Scrubber::Schedule() {
  state_->parts.scrubbers->Schedule(
      [self = shared_from_this()] { self->Run(); });
}

void Scrubber::Run() {
  const RunningTask task(*state_);
  if (!task.ok()) {
    return;
  }
  const std::string name = NextName();
  const uint64_t bytes = name.empty() ? 0 : Read(name);
  bool again = false;
  {
    MutexLock lock(state_->mutex);
    due_ -= static_cast<int64_t>(bytes);
    // A pass that has read nothing leaves as much due as before: it ends with
    // this tick all the same.
    again = due_ > 0 && !names_.empty() && !state_->closing;
    scheduled_ = again;
  }
  if (again) {
    Schedule();
  }
}

std::string Scrubber::NextName() {
  if (names_.empty()) {
    names_ = state_->parts.env->List(state_->own_dir)
                 .value_or(std::vector<std::string>());
    // In an order that does not depend on the file system.
    std::sort(names_.begin(), names_.end(), std::greater<>());
  }
  while (!names_.empty()) {
    std::string name = std::move(names_.back());
    names_.pop_back();
    if (ParseBlockFileName(name).has_value()) {
      return name;
    }
  }
  return "";
}

uint64_t Scrubber::Read(const std::string& name) {
  const FileId id{kOwnDir, *ParseBlockFileName(name)};
  uint64_t generation = 0;
  {
    MutexLock lock(state_->mutex);
    const IndexEntry* const entry = state_->index.Find(id);
    if (entry == nullptr) {
      return 0;
    }
    generation = entry->generation;
  }
  const std::string path = state_->PathOf(id);
  const absl::StatusOr<BlockHeader> header =
      VerifyBlockFile(*state_->parts.env, path);
  if (absl::IsNotFound(header.status())) {
    Fail(id, generation, header.status());
    return 0;
  }
  const uint64_t bytes = header.ok() ? header->file_bytes() : kHeaderBytes;
  {
    MutexLock lock(state_->mutex);
    ++state_->counters.scrubbed;
    state_->counters.scrubbed_bytes += bytes;
  }
  if (header.ok()) {
    unread_.Recovered();
  } else {
    Fail(id, generation, header.status());
  }
  return bytes;
}

void Scrubber::Fail(const FileId& id, uint64_t generation,
                    const absl::Status& why) {
  // A file of another version has taken the place of ours.
  const absl::Status reason =
      absl::IsUnimplemented(why) ? absl::DataLossError(why.message()) : why;
  if (!IsDamage(reason) && !absl::IsNotFound(reason)) {
    unread_.Add(1, reason.ToString());
    MutexLock lock(state_->mutex);
    ++state_->counters.scrub_failed;
    return;
  }
  if (!writer_->GiveUp(id, generation, reason)) {
    return;
  }
  state_->parts.logger->warn("{} is {}: {}", state_->PathOf(id),
                             IsDamage(reason) ? "damaged" : "gone",
                             reason.ToString());
  {
    MutexLock lock(state_->mutex);
    state_->AddEvents({cache::DroppedEvent{id.key, cache::DropReason::kLost}});
  }
  state_->WakeUp();
}

}  // namespace everwarm::store
