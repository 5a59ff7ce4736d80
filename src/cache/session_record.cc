#include "cache/session_record.h"

#include <cstdint>

#include "base/sha256.h"

namespace everwarm::cache {

SessionId SessionIdOf(std::string_view name) {
  Sha256 hash;
  hash.Update("everwarm-session-1");
  hash.Update(name);
  return {hash.Finish()};
}

RecordId SessionRecord::id() const {
  const uint8_t flag = closed ? 1 : 0;
  Sha256 hash;
  hash.Update("everwarm-session-record-1");
  hash.Update(session.digest.data(), session.digest.size());
  hash.Update(path.back().digest.data(), path.back().digest.size());
  hash.Update(&flag, sizeof(flag));
  return hash.Finish();
}

}  // namespace everwarm::cache
