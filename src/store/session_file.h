// The format of a session record's file (docs/format.md), and its name.
//
// As in block_file.h: whatever is read may be damaged, cut or made by somebody
// else; no input crashes, and every bound is checked.
#ifndef EVERWARM_STORE_SESSION_FILE_H_
#define EVERWARM_STORE_SESSION_FILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "cache/session_record.h"
#include "store/aligned_buffer.h"
#include "store/env.h"

namespace everwarm::store {

inline constexpr uint32_t kSessionFormatVersion = 1;
// A path of 16 million tokens and more.
inline constexpr size_t kMaxSessionNodes = size_t{1} << 20;

struct SessionFile {
  Fingerprint fingerprint;
  cache::SessionRecord record;
};

// Whole pages.
size_t SessionFileBytes(size_t nodes);
// Requires: 1 to kMaxSessionNodes nodes.
AlignedBuffer EncodeSession(const SessionFile& file);
// Writes the checksum, as the last step of EncodeSession(); tests use it to
// make records that lie. Requires: whole pages, at least one.
void SealSession(absl::Span<std::byte> bytes);
// Errors: kDataLoss, damaged or never a record; kUnimplemented, an intact one
// of another version.
absl::StatusOr<SessionFile> DecodeSession(absl::Span<const std::byte> bytes);

// Reads and checks the file, its name too.
// Errors: those of Env::OpenForRead() and DecodeSession().
absl::StatusOr<SessionFile> ReadSessionFile(Env& env, const std::string& path);

// In an index, records are beside blocks, of a group that no model has.
inline constexpr GroupIndex kSessionGroup = UINT16_MAX;
inline BlockKey SessionKey(const cache::RecordId& id) {
  return {NodeId{id}, kSessionGroup};
}
inline bool IsSession(const BlockKey& key) {
  return key.group == kSessionGroup;
}

// "<64 hex digits>.session"
std::string SessionFileName(const cache::RecordId& id);
// Nothing for any other name.
std::optional<cache::RecordId> ParseSessionFileName(std::string_view name);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_SESSION_FILE_H_
