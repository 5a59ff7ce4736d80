// Which of the running requests begin alike, and how far.
//
// Threads: one.
#ifndef EVERWARM_ENGINE_SHARED_PREFIXES_H_
#define EVERWARM_ENGINE_SHARED_PREFIXES_H_

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace everwarm::engine {

class SharedPrefixes {
 public:
  // Prompt and name must stay where they are until Remove().
  void Add(uint64_t id, absl::Span<const TokenId> prompt,
           std::string_view name_space);
  void Remove(uint64_t id);

  // Tokens that both prompts begin with; 0 in different namespaces.
  // Requires: both have been added, and are not the same.
  TokenPos Common(uint64_t a, uint64_t b) const;

 private:
  struct Entry {
    absl::Span<const TokenId> prompt;
    std::string_view name_space;
  };
  std::map<uint64_t, Entry> entries_;
  // The smaller id first.
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, TokenPos> common_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_SHARED_PREFIXES_H_
