#include "engine/shared_prefixes.h"

#include <algorithm>

namespace everwarm::engine {

void SharedPrefixes::Add(uint64_t id, absl::Span<const TokenId> prompt,
                         std::string_view name_space) {
  for (const auto& [other, entry] : entries_) {
    TokenPos common = 0;
    if (entry.name_space == name_space) {
      const auto end = std::mismatch(prompt.begin(), prompt.end(),
                                     entry.prompt.begin(), entry.prompt.end());
      common = static_cast<TokenPos>(end.first - prompt.begin());
    }
    common_[std::minmax(id, other)] = common;
  }
  entries_[id] = {prompt, name_space};
}

void SharedPrefixes::Remove(uint64_t id) {
  if (entries_.erase(id) == 0) {
    return;
  }
  for (const auto& [other, entry] : entries_) {
    common_.erase(std::minmax(id, other));
  }
}

TokenPos SharedPrefixes::Common(uint64_t a, uint64_t b) const {
  return common_.at(std::minmax(a, b));
}

}  // namespace everwarm::engine
