#include "cache/retention.h"

#include <chrono>
#include <utility>

namespace everwarm::cache {
namespace {

// A search that found nothing is repeated after this, in case shares were given
// back by somebody who does not say so (a writer).
constexpr std::chrono::milliseconds kSearchAgain{20};
// How often idle copies are looked for: leaving this much later is no harm.
constexpr std::chrono::milliseconds kLookForIdle{1000};

}  // namespace

void Retention::Attach(Residency& residency, BlockRef block, uint32_t tokens) {
  if (residency.ram) {
    CountShares(residency.ram, -1);
    Touch(residency);
  } else {
    order_.push_back(&residency);
    residency.ram_place = std::prev(order_.end());
    states_ += residency.is_state() ? 1 : 0;
  }
  CountShares(block, 1);
  residency.used_at = parts_.clock->Now();
  residency.ram = std::move(block);
  residency.ram_tokens = tokens;
  flushes_.OnPresent(residency, tokens);
  changed_ = true;
}

void Retention::Touch(Residency& residency) {
  if (residency.ram) {
    order_.splice(order_.end(), order_, residency.ram_place);
    residency.used_at = parts_.clock->Now();
  }
}

void Retention::MakeRoom(size_t incoming_bytes) {
  if (parts_.pool->used_bytes() + incoming_bytes <= options_.target_bytes) {
    return;
  }
  const Clock::Monotonic now = parts_.clock->Now();
  if (!changed_ && now - searched_at_ < kSearchAgain) {
    return;
  }
  changed_ = false;
  searched_at_ = now;
  DropUntil(options_.target_bytes, incoming_bytes, Drop::kClean);
  DropUntil(options_.hard_cap_bytes, incoming_bytes, Drop::kAny);
}

void Retention::DemoteAll() { DropUntil(0, 1, Drop::kDurable); }

void Retention::DemoteIdle() {
  const Clock::Monotonic now = parts_.clock->Now();
  if (options_.demote_idle.count() == 0 ||
      now - idle_searched_at_ < kLookForIdle) {
    return;
  }
  idle_searched_at_ = now;
  for (auto it = order_.begin(); it != order_.end();) {
    Residency& residency = **it++;
    if (now - residency.used_at < options_.demote_idle) {
      return;
    }
    if (MayDrop(residency, Drop::kDurable)) {
      DropCopy(residency);
      changed_ = true;
    }
  }
}

void Retention::QueueNewestFirst() {
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    stores_.PutLast(**it);
  }
}

void Retention::DropUntil(uint64_t limit, size_t incoming_bytes, Drop what) {
  DropUntil(limit, incoming_bytes, what, Whose::kNoSessions);
  DropUntil(limit, incoming_bytes, what, Whose::kAnybodys);
}

void Retention::DropUntil(uint64_t limit, size_t incoming_bytes, Drop what,
                          Whose whose) {
  for (auto it = order_.begin(); it != order_.end();) {
    if (parts_.pool->used_bytes() + incoming_bytes <= limit) {
      return;
    }
    Residency& residency = **it++;
    if (whose == Whose::kNoSessions && IsOfSession(residency)) {
      continue;
    }
    if (MayDrop(residency, what)) {
      DropCopy(residency);
      changed_ = true;
    }
  }
}

bool Retention::MayDrop(const Residency& residency, Drop what) {
  // A tail that two conversations went on from can be two nodes' block.
  if (residency.ram.shares() > residency.ram->cached_shares() ||
      residency.store == StoreState::kRunning) {
    return false;
  }
  // What waits for nothing and is not durable either was durable once and is
  // beyond the tier's cap now, or there is no tier.
  return residency.durable() || what == Drop::kAny ||
         (what == Drop::kClean && residency.store == StoreState::kNone);
}

bool Retention::IsOfSession(const Residency& residency) {
  const Node& node = *residency.node;
  return node.sessions > 0 && (!residency.is_state() || node.children == 0);
}

void Retention::CountShares(const BlockRef& block, int more) {
  block->set_cached_shares(block->cached_shares() + more);
}

void Retention::DropCopy(Residency& residency) {
  if (residency.durable()) {
    ++counters_.demoted;
    // Queued, and meanwhile found on the disk: nobody will come to its turn.
    if (residency.store != StoreState::kNone) {
      flushes_.OnStored(residency, residency.tier_tokens);
    }
  } else {
    ++counters_.lost;
    if (residency.store != StoreState::kNone) {
      flushes_.OnLost(residency);
    }
  }
  LetGo(residency);
  tree_.Prune(residency.node);
}

bool Retention::MayRetire(Residency& state) const {
  return state.plans == 0 && state.loads == 0 &&
         state.store != StoreState::kRunning && !flushes_.awaited(state);
}

void Retention::Retire(Residency& state) {
  flushes_.OnRetired(state);
  if (state.ram) {
    LetGo(state);
    changed_ = true;
  }
}

void Retention::LetGo(Residency& residency) {
  stores_.Forget(residency);
  order_.erase(residency.ram_place);
  states_ -= residency.is_state() ? 1 : 0;
  CountShares(residency.ram, -1);
  residency.ram = BlockRef();
  residency.ram_tokens = 0;
}

}  // namespace everwarm::cache
