#include "models/call_ids.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/ids.h"
#include "base/sha256.h"

namespace everwarm::models {
namespace {

constexpr size_t kLetters = 9;
constexpr std::string_view kAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

}  // namespace

std::string NineLetterCallId(const std::string& id) {
  if (id.size() == kLetters && std::all_of(id.begin(), id.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c));
      })) {
    return id;
  }
  Sha256 hash;
  hash.Update(id);
  const Digest digest = hash.Finish();
  std::string letters;
  for (size_t i = 0; i < kLetters; ++i) {
    letters += kAlphabet[static_cast<uint8_t>(digest[i]) % kAlphabet.size()];
  }
  return letters;
}

}  // namespace everwarm::models
