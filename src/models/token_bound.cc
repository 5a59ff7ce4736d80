#include "models/token_bound.h"

#include <algorithm>

namespace everwarm::models {
namespace {

// A character that the vocabulary does not know becomes one token, whatever its
// bytes: four at most, three of them perhaps the same.
constexpr size_t kCharacterBytes = 4;
constexpr uint32_t kSameBytes = 3;

std::array<uint32_t, 256> Count(std::string_view text) {
  std::array<uint32_t, 256> counts{};
  for (const char byte : text) {
    ++counts[static_cast<uint8_t>(byte)];
  }
  return counts;
}

}  // namespace

TokenBound::TokenBound() : longest_(kCharacterBytes), most_{} {
  std::fill(most_.begin() + 0x80, most_.end(), kSameBytes);
}

void TokenBound::Add(std::string_view piece) {
  longest_ = std::max(longest_, piece.size());
  const std::array<uint32_t, 256> counts = Count(piece);
  for (size_t byte = 0; byte < counts.size(); ++byte) {
    most_[byte] = std::max(most_[byte], counts[byte]);
  }
}

uint64_t TokenBound::MinTokens(std::string_view text) const {
  uint64_t least = (text.size() + longest_ - 1) / longest_;
  const std::array<uint32_t, 256> counts = Count(text);
  for (size_t byte = 0; byte < counts.size(); ++byte) {
    const uint64_t most = std::max<uint32_t>(most_[byte], 1);
    least = std::max(least, (counts[byte] + most - 1) / most);
  }
  return least;
}

}  // namespace everwarm::models
