// What a start-up scan found, as conversations: for whoever remembers more of
// them than blocks.
//
// Pure.
#ifndef EVERWARM_CACHE_LATEST_CONVERSATIONS_H_
#define EVERWARM_CACHE_LATEST_CONVERSATIONS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/tier.h"

namespace everwarm::cache {

struct Conversation {
  NodeId root;
  std::vector<TokenId> tokens;
};

// The `max` most recently used paths from a root to tokens that nothing goes on
// from, the most recent one last. Those with a gap are left out.
std::vector<Conversation> LatestConversations(
    absl::Span<const TierEntry> entries, size_t max);

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_LATEST_CONVERSATIONS_H_
