// Who may ask for what: the API key, and the admin paths.
//
// Threads: immutable, any.
#ifndef EVERWARM_SERVER_ACCESS_H_
#define EVERWARM_SERVER_ACCESS_H_

#include <string>
#include <string_view>

#include "base/ids.h"

namespace everwarm::server {

enum class Access {
  kAllowed,
  kWrongKey,      // 401
  kNotFromThere,  // 403: an admin path, from another machine, without a key
};

// Whether a numeric address is one of this machine alone: 127.0.0.0/8 or ::1,
// also written as an IPv6 address. False for names.
bool IsLoopback(std::string_view address);

class AccessRules {
 public:
  // An empty key protects nothing; then the admin paths are for this machine
  // only, unless `admin_from_anywhere`.
  AccessRules(std::string_view api_key, bool admin_from_anywhere);

  struct Asker {
    std::string_view path;
    std::string_view remote_address;
    std::string_view authorization;  // the header, "Bearer KEY"
    std::string_view x_api_key;      // the header, KEY
  };
  // Takes the same time for every wrong key.
  Access Check(const Asker& asker) const;

 private:
  bool KeyMatches(std::string_view key) const;

  const bool has_key_;
  // SHA-256 of the key: comparing digests tells nothing about a common prefix
  // or the length.
  const Digest key_digest_;
  const bool admin_from_anywhere_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ACCESS_H_
