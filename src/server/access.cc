#include "server/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "base/sha256.h"

namespace everwarm::server {
namespace {

Digest DigestOf(std::string_view text) {
  Sha256 sha;
  sha.Update(text);
  return sha.Finish();
}

constexpr char kLocalhost[] = "localhost";
constexpr std::string_view kSchemeEnd = "://";

bool IsNumeric(int family, std::string_view address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return inet_pton(family, std::string(address).c_str(), bytes.data()) == 1;
}

bool IsNumeric(std::string_view address) {
  return IsNumeric(AF_INET, address) || IsNumeric(AF_INET6, address);
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

std::string HostOfAuthority(std::string_view authority) {
  std::string_view host = authority;
  std::string_view rest;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) {
      return "";
    }
    host = authority.substr(1, end - 1);
    rest = authority.substr(end + 1);
    if (!IsNumeric(AF_INET6, host)) {
      return "";
    }
  } else if (const size_t colon = authority.find(':');
             colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    rest = authority.substr(colon);
  }
  if (!rest.empty() &&
      (rest[0] != ':' ||
       rest.find_first_not_of("0123456789", 1) != std::string_view::npos)) {
    return "";
  }
  return absl::AsciiStrToLower(absl::string_view(host.data(), host.size()));
}

AccessRules::AccessRules(const Config& config)
    : has_key_(!config.api_key.empty()),
      key_digest_(DigestOf(config.api_key)),
      admin_from_anywhere_(config.admin_from_anywhere),
      others_get_in_(config.listen_host != kLocalhost &&
                     !IsLoopback(config.listen_host)),
      hosts_({kLocalhost, absl::AsciiStrToLower(config.listen_host)}) {
  for (const std::string& host : config.allowed_hosts) {
    hosts_.insert(absl::AsciiStrToLower(host));
  }
}

Access AccessRules::Check(const Asker& asker) const {
  if (asker.path == "/health") {
    return Access::kAllowed;
  }
  if (has_key_) {
    const bool matches = KeyMatches(BearerKey(asker.authorization)) ||
                         KeyMatches(asker.x_api_key);
    return matches ? Access::kAllowed : Access::kWrongKey;
  }
  return CheckWithoutKey(asker);
}

Access AccessRules::CheckWithoutKey(const Asker& asker) const {
  // A proxy on this machine looks like this machine, whoever asks it.
  if (asker.path.starts_with("/admin/") && !admin_from_anywhere_ &&
      (asker.forwarded || !IsLoopback(asker.remote_address))) {
    return Access::kNotFromThere;
  }
  // Browsers always send one; a program of HTTP/1.0 need not.
  std::string host;
  if (asker.host.has_value()) {
    host = HostOfAuthority(*asker.host);
    // Nobody's name leads to a number, so where others get in it may be any.
    if (!IsOurs(host) && !(others_get_in_ && IsNumeric(host))) {
      return Access::kWrongHost;
    }
  }
  if (asker.origin.has_value()) {
    const size_t scheme = asker.origin->find(kSchemeEnd);
    // "null" of a sandboxed page, too.
    if (scheme == std::string_view::npos) {
      return Access::kWrongOrigin;
    }
    const std::string from =
        HostOfAuthority(asker.origin->substr(scheme + kSchemeEnd.size()));
    // A page of an address is ours only if it is the address asked for.
    if (from.empty() || (!IsOurs(from) && from != host)) {
      return Access::kWrongOrigin;
    }
  }
  return Access::kAllowed;
}

bool AccessRules::IsOurs(const std::string& host) const {
  return IsLoopback(host) || hosts_.count(host) > 0;
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
