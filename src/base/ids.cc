#include "base/ids.h"

#include <bit>

#include "base/sha256.h"

namespace everwarm {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string ToHex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(digest.size() * 2);
  for (const uint8_t byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::optional<Digest> DigestFromHex(std::string_view hex) {
  Digest digest;
  if (hex.size() != digest.size() * 2) {
    return std::nullopt;
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return std::nullopt;
    }
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
}

NodeId RootId(const Fingerprint& fingerprint, std::string_view name_space) {
  Sha256 hash;
  hash.Update(fingerprint.digest.data(), fingerprint.digest.size());
  hash.Update(name_space.data(), name_space.size());
  return NodeId{hash.Finish()};
}

NodeId ChildId(const NodeId& parent, absl::Span<const TokenId> tokens) {
  static_assert(std::endian::native == std::endian::little,
                "token ids are hashed as little-endian numbers");
  Sha256 hash;
  hash.Update(parent.digest.data(), parent.digest.size());
  hash.Update(tokens.data(), tokens.size() * sizeof(TokenId));
  return NodeId{hash.Finish()};
}

}  // namespace everwarm
