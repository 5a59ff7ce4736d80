#include "server/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "base/sha256.h"

namespace everwarm::server {
namespace {

Digest DigestOf(std::string_view text) {
  Sha256 sha;
  sha.Update(text);
  return sha.Finish();
}

std::string_view BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  constexpr std::string_view kLowerScheme = "bearer ";
  if (!authorization.starts_with(kScheme) &&
      !authorization.starts_with(kLowerScheme)) {
    return "";
  }
  return authorization.substr(kScheme.size());
}

}  // namespace

bool IsLoopback(std::string_view address) {
  const std::string text(address);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == 127;
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) {
    return false;
  }
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

AccessRules::AccessRules(std::string_view api_key, bool admin_from_anywhere)
    : has_key_(!api_key.empty()),
      key_digest_(DigestOf(api_key)),
      admin_from_anywhere_(admin_from_anywhere) {}

Access AccessRules::Check(const Asker& asker) const {
  if (asker.path == "/health") {
    return Access::kAllowed;
  }
  if (has_key_) {
    const bool matches = KeyMatches(BearerKey(asker.authorization)) ||
                         KeyMatches(asker.x_api_key);
    return matches ? Access::kAllowed : Access::kWrongKey;
  }
  if (asker.path.starts_with("/admin/") && !admin_from_anywhere_ &&
      !IsLoopback(asker.remote_address)) {
    return Access::kNotFromThere;
  }
  return Access::kAllowed;
}

bool AccessRules::KeyMatches(std::string_view key) const {
  const Digest digest = DigestOf(key);
  uint8_t difference = 0;
  for (size_t i = 0; i < digest.size(); ++i) {
    difference |= digest[i] ^ key_digest_[i];
  }
  return difference == 0;
}

}  // namespace everwarm::server
