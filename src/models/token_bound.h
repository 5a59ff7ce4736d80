// How many tokens a text has at least, told from its bytes alone.
//
// Counting tokens exactly can take minutes for a text that a vocabulary has
// little for; that it cannot fit shows at once.
#ifndef EVERWARM_MODELS_TOKEN_BOUND_H_
#define EVERWARM_MODELS_TOKEN_BOUND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace everwarm::models {

// A token stands for no more than the longest piece has bytes, and for no more
// bytes of one value than any piece has. It holds for tokenizers that keep
// every byte of the text; space that a control token swallows beside itself is
// counted as if it were kept.
//
// Threads: Add() first, by one; MinTokens() by any.
class TokenBound {
 public:
  TokenBound();
  // What a token can stand for. Once for each form: with spaces, and with what
  // the vocabulary writes for them.
  void Add(std::string_view piece);

  uint64_t MinTokens(std::string_view text) const;

 private:
  size_t longest_;
  // By byte value: how often it is in one piece at most; 0: in none.
  std::array<uint32_t, 256> most_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_TOKEN_BOUND_H_
