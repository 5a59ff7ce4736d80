#include <utility>

#include "cache/tier.h"

namespace everwarm::cache {

absl::Status NullTier::Store(StoreRequest) {
  return absl::UnavailableError("there is no tier to store blocks in");
}

void NullTier::Load(LoadRequest request) {
  events_.push_back(LoadFailedEvent{request.identity.key,
                                    absl::NotFoundError("there is no tier")});
}

std::vector<TierEvent> NullTier::TakeEvents() {
  return std::exchange(events_, {});
}

}  // namespace everwarm::cache
