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
      ticked_at_(state_->parts.clock->Now()) {}

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
    again = due_ > 0 && !name.empty();
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
    return 0;
  }
  const uint64_t bytes = header.ok() ? header->file_bytes() : kHeaderBytes;
  const bool current =
      !header.ok() && writer_->GiveUp(id, generation, header.status());
  {
    MutexLock lock(state_->mutex);
    ++state_->counters.scrubbed;
    state_->counters.scrubbed_bytes += bytes;
    if (current) {
      state_->AddEvents({cache::DroppedEvent{id.key}});
    }
  }
  if (current) {
    state_->parts.logger->warn("{} is damaged: {}", path,
                               header.status().ToString());
    state_->WakeUp();
  }
  return bytes;
}

}  // namespace everwarm::store
