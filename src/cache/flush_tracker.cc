#include "cache/flush_tracker.h"

#include <algorithm>
#include <utility>

namespace everwarm::cache {
namespace {

// Places of missing blocks that the tree keeps, so that they can be made good:
// about 1 KiB each.
constexpr size_t kMaxMissing = 16384;

}  // namespace

std::pair<uint64_t, FlushTracker::Ticket*> FlushTracker::Open() {
  const uint64_t id = ++last_ticket_;
  return {id, &tickets_[id]};
}

void FlushTracker::Await(uint64_t ticket, Residency& residency) {
  tickets_.at(ticket).awaited[&residency] = {residency.ram_tokens, false};
}

bool FlushTracker::awaited(Residency& residency) const {
  return std::any_of(tickets_.begin(), tickets_.end(), [&](const auto& item) {
    return item.second.awaited.contains(&residency);
  });
}

void FlushTracker::OnAttempt(Residency& residency) {
  for (auto& [id, ticket] : tickets_) {
    const auto found = ticket.awaited.find(&residency);
    if (found != ticket.awaited.end()) {
      found->second.tried = true;
    }
  }
}

void FlushTracker::OnStored(Residency& residency, uint32_t tokens) {
  OnPresent(residency, tokens);
  for (auto& [id, ticket] : tickets_) {
    const auto found = ticket.awaited.find(&residency);
    if (found == ticket.awaited.end()) {
      continue;
    }
    ++ticket.flushed;
    if (tokens >= found->second.tokens) {
      ticket.awaited.erase(found);
    }
  }
}

bool FlushTracker::OnFailed(Residency& residency) {
  bool again = false;
  for (auto& [id, ticket] : tickets_) {
    const auto found = ticket.awaited.find(&residency);
    if (found == ticket.awaited.end()) {
      continue;
    }
    if (found->second.tried) {
      ++ticket.failed;
      ticket.awaited.erase(found);
    } else {
      again = true;
    }
  }
  return again;
}

void FlushTracker::OnLost(Residency& residency) {
  MarkMissing(residency, residency.ram_tokens);
  for (auto& [id, ticket] : tickets_) {
    ticket.dropped += ticket.awaited.erase(&residency);
  }
}

void FlushTracker::OnRetired(Residency& residency) {
  if (residency.missing_tokens > 0) {
    ClearMissing(residency);
  }
  for (auto& [id, ticket] : tickets_) {
    ticket.awaited.erase(&residency);
  }
}

void FlushTracker::OnPresent(Residency& residency, uint32_t tokens) {
  if (residency.missing_tokens > 0 && residency.missing_tokens <= tokens) {
    ClearMissing(residency);
  }
}

void FlushTracker::MarkMissing(Residency& residency, uint32_t tokens) {
  if (residency.missing_tokens == 0) {
    missing_.push_back(&residency);
    residency.missing_place = std::prev(missing_.end());
  }
  residency.missing_tokens = std::max(residency.missing_tokens, tokens);
  if (missing_.size() > kMaxMissing) {
    Residency& oldest = *missing_.front();
    ++forgotten_missing_;
    ClearMissing(oldest);
    tree_.Prune(oldest.node);
  }
}

void FlushTracker::ClearMissing(Residency& residency) {
  missing_.erase(residency.missing_place);
  residency.missing_tokens = 0;
}

bool FlushTracker::settled(uint64_t ticket) const {
  const auto found = tickets_.find(ticket);
  return found == tickets_.end() || found->second.awaited.empty();
}

FlushReport FlushTracker::Report(uint64_t ticket, const BlockPool& pool) const {
  FlushReport report;
  report.missing = missing_.size() + forgotten_missing_;
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) {
    return report;
  }
  report.flushed = found->second.flushed;
  report.failed = found->second.failed;
  report.dropped = found->second.dropped;
  report.pending = found->second.awaited.size();
  for (const auto& [residency, awaited] : found->second.awaited) {
    report.pending_bytes +=
        pool.geometry(residency->group, residency->node->start)
            .PayloadBytes(awaited.tokens);
  }
  return report;
}

}  // namespace everwarm::cache
