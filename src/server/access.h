// Who may ask for what: the API key, the admin paths, and web pages.
//
// Without a key, a page in somebody's browser is as much on this machine as any
// program. Browsers say by whose name they were led here (Host) and which page
// sent them (Origin); both must be this machine. So a foreign page neither
// makes requests that do something, nor reads a reply by having its own name
// point here (DNS rebinding).
//
// Threads: immutable, any.
#ifndef EVERWARM_SERVER_ACCESS_H_
#define EVERWARM_SERVER_ACCESS_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace everwarm::server {

enum class Access {
  kAllowed,
  kWrongKey,  // 401
  // 403, all without a key: an admin path, from another machine or by way of a
  // proxy; a Host that is not this machine; an Origin that is not.
  kNotFromThere,
  kWrongHost,
  kWrongOrigin,
};

// Whether a numeric address is one of this machine alone: 127.0.0.0/8 or ::1,
// also written as an IPv6 address. False for names.
bool IsLoopback(std::string_view address);

// The host of "host:port", "[::1]:port" or either without a port, in lower
// case and without brackets; empty when it is none.
std::string HostOfAuthority(std::string_view authority);

class AccessRules {
 public:
  struct Config {
    // Empty: everybody may ask who gets here, and the rest of this counts.
    std::string api_key;
    // Else the admin paths are for this machine only.
    bool admin_from_anywhere = false;
    // What the server listens on. Where others get in, any numeric address may
    // be the one that they know it by; names are not.
    std::string listen_host = "127.0.0.1";
    // Further names of this machine.
    std::vector<std::string> allowed_hosts;
  };
  explicit AccessRules(const Config& config);

  struct Asker {
    std::string_view path;
    std::string_view remote_address;
    std::string_view authorization;  // the header, "Bearer KEY"
    std::string_view x_api_key;      // the header, KEY
    // These headers; nothing where the request has none.
    std::optional<std::string_view> host;
    std::optional<std::string_view> origin;
    // There is a header that only proxies add.
    bool forwarded = false;
  };
  // Takes the same time for every wrong key.
  Access Check(const Asker& asker) const;

 private:
  bool KeyMatches(std::string_view key) const;
  Access CheckWithoutKey(const Asker& asker) const;
  bool IsOurs(const std::string& host) const;

  const bool has_key_;
  // SHA-256 of the key: comparing digests tells nothing about a common prefix
  // or the length.
  const Digest key_digest_;
  const bool admin_from_anywhere_;
  const bool others_get_in_;
  // In lower case.
  std::set<std::string> hosts_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ACCESS_H_
