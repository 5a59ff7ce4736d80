#include "cache/stores.h"

#include <utility>

namespace everwarm::cache {

ResidencyList& Stores::list(StoreState state) {
  switch (state) {
    case StoreState::kRunning:
      return running_;
    case StoreState::kWaiting:
      return waiting_;
    case StoreState::kQueued:
    case StoreState::kNone:
      break;
  }
  return queued_;
}

void Stores::Move(Residency& residency, StoreState to) {
  ResidencyList place;
  if (residency.store == StoreState::kNone) {
    place.push_back(&residency);
  } else {
    place.splice(place.end(), list(residency.store), residency.store_place);
  }
  residency.store = to;
  if (to != StoreState::kNone) {
    residency.store_place = place.begin();
    list(to).splice(list(to).end(), place);
  }
}

void Stores::MarkDirty(Residency& residency) {
  if (parts_.tier_enabled && residency.ram && !residency.durable() &&
      residency.store == StoreState::kNone) {
    Move(residency, StoreState::kQueued);
  }
}

void Stores::Forget(Residency& residency) {
  if (residency.store != StoreState::kNone) {
    Move(residency, StoreState::kNone);
  }
}

void Stores::PutLast(Residency& residency) {
  if (residency.store == StoreState::kQueued) {
    queued_.splice(queued_.end(), queued_, residency.store_place);
  }
}

void Stores::TakeBack() {
  for (const BlockKey& key : parts_.tier->TakeBackStores()) {
    const auto found = running_by_key_.find(key);
    if (found == running_by_key_.end()) {
      continue;
    }
    Residency& residency = *found->second;
    running_by_key_.erase(found);
    residency.storing_tokens = 0;
    Move(residency, StoreState::kQueued);
  }
}

void Stores::Pump() {
  while (!queued_.empty()) {
    Residency& residency = *queued_.front();
    StoreRequest request{
        tree_.Identity(residency.node, residency.group, residency.ram_tokens),
        residency.ram};
    if (Spare(residency, request.identity)) {
      continue;
    }
    const BlockKey key = request.identity.key;
    const absl::Status status = parts_.tier->Store(std::move(request));
    if (absl::IsResourceExhausted(status)) {
      return;
    }
    flushes_.OnAttempt(residency);
    if (!status.ok()) {
      Fail(residency, status);
      continue;
    }
    residency.storing_tokens = residency.ram_tokens;
    running_by_key_[key] = &residency;
    Move(residency, StoreState::kRunning);
  }
}

bool Stores::Spare(Residency& residency, const BlockIdentity& identity) {
  // A start-up scan may have found it, before or after it got here.
  if (residency.durable() || adoption_.Claim(identity, residency)) {
    Succeed(residency);
    return true;
  }
  // The beginning of one node can be the beginning of a sibling that was
  // published since: the same bytes under the same name.
  if (copies_.Find(identity.key) != nullptr) {
    Move(residency, StoreState::kNone);
    flushes_.OnStored(residency, residency.ram_tokens);
    return true;
  }
  if (running_by_key_.contains(identity.key)) {
    residency.retry_at = parts_.clock->Now();
    Move(residency, StoreState::kWaiting);
    waiting_.splice(waiting_.begin(), waiting_, residency.store_place);
    return true;
  }
  return false;
}

void Stores::QueueDue() {
  const Clock::Monotonic now = parts_.clock->Now();
  while (!waiting_.empty() && waiting_.front()->retry_at <= now) {
    Move(*waiting_.front(), StoreState::kQueued);
  }
}

void Stores::QueueFailed() {
  while (!waiting_.empty()) {
    Move(*waiting_.front(), StoreState::kQueued);
  }
}

void Stores::QueueAll(uint64_t ticket) {
  QueueFailed();
  for (Residency* residency : running_) {
    flushes_.Await(ticket, *residency);
  }
  for (Residency* residency : queued_) {
    flushes_.Await(ticket, *residency);
  }
}

void Stores::OnStored(const BlockKey& key) {
  const auto found = running_by_key_.find(key);
  if (found == running_by_key_.end()) {
    return;
  }
  Residency& residency = *found->second;
  running_by_key_.erase(found);
  copies_.Add(residency, std::exchange(residency.storing_tokens, 0));
  Succeed(residency);
  adoption_.OnDurable(key);
}

void Stores::Succeed(Residency& residency) {
  Move(residency, StoreState::kNone);
  flushes_.OnStored(residency, residency.tier_tokens);
  MarkDirty(residency);
}

void Stores::OnFailed(const BlockKey& key, const absl::Status& status) {
  const auto found = running_by_key_.find(key);
  if (found == running_by_key_.end()) {
    return;
  }
  Residency& residency = *found->second;
  running_by_key_.erase(found);
  residency.storing_tokens = 0;
  Fail(residency, status);
}

void Stores::Fail(Residency& residency, const absl::Status& status) {
  // The tier says it to people, once for many.
  parts_.logger->debug(
      "the block of group {} at position {} was not stored: {}",
      residency.group, residency.node->start, status.ToString());
  residency.retry_at = parts_.clock->Now() + options_.retry;
  const bool again = flushes_.OnFailed(residency);
  Move(residency, again ? StoreState::kQueued : StoreState::kWaiting);
}

}  // namespace everwarm::cache
