#include "cache/loads.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status_macros.h"

namespace everwarm::cache {

absl::StatusOr<Load*> Loads::Join(Residency& residency, uint32_t tokens,
                                  Load::Waiter waiter) {
  const uint32_t length = residency.loading_tokens >= tokens
                              ? residency.loading_tokens
                              : residency.tier_tokens;
  BlockIdentity identity =
      tree_.Identity(residency.node, residency.group, length);
  if (loads_.empty()) {
    last_progress_ = parts_.clock->Now();
  }
  std::unique_ptr<Load>& load = loads_[identity.key];
  if (load == nullptr) {
    absl::StatusOr<BlockRef> slot =
        parts_.pool->Allocate(residency.group, residency.node->start);
    if (!slot.ok()) {
      loads_.erase(identity.key);
      return slot.status();
    }
    load = std::make_unique<Load>();
    load->residency = &residency;
    load->tokens = length;
    ++residency.loads;
    residency.loading_tokens = std::max(residency.loading_tokens, length);
    parts_.tier->Load({std::move(identity), *std::move(slot)});
  }
  load->waiters.push_back(waiter);
  return load.get();
}

void Loads::Leave(Load& load, const SequenceState& sequence) {
  std::erase_if(load.waiters, [&](const Load::Waiter& waiter) {
    return waiter.sequence == &sequence;
  });
}

std::unique_ptr<Load> Loads::End(const BlockKey& key) {
  const auto found = loads_.find(key);
  if (found == loads_.end()) {
    return nullptr;
  }
  std::unique_ptr<Load> load = std::move(found->second);
  loads_.erase(found);
  last_progress_ = parts_.clock->Now();
  Residency& residency = *load->residency;
  --residency.loads;
  if (residency.loads == 0 || residency.loading_tokens == load->tokens) {
    residency.loading_tokens = 0;
  }
  return load;
}

bool Loads::Stalled(std::chrono::nanoseconds patience) const {
  return patience.count() > 0 && !loads_.empty() &&
         parts_.clock->Now() - last_progress_ >= patience;
}

std::vector<SequenceState*> Loads::Waiters() const {
  absl::flat_hash_set<SequenceState*> sequences;
  for (const auto& [key, load] : loads_) {
    for (const Load::Waiter& waiter : load->waiters) {
      sequences.insert(waiter.sequence);
    }
  }
  return {sequences.begin(), sequences.end()};
}

}  // namespace everwarm::cache
