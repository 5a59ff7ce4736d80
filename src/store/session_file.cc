#include "store/session_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/block_geometry.h"
#include "base/status_macros.h"
#include "store/directory_layout.h"
#include "store/file_fields.h"
#include "xxhash.h"

namespace everwarm::store {
namespace {

constexpr char kMagic[8] = {'E', 'W', 'S', 'E', 'S', 'S', 'N', '\n'};
constexpr absl::string_view kSuffix = ".session";

// Where each field lies. All numbers are little-endian.
constexpr size_t kVersionAt = 8;
constexpr size_t kFlagsAt = 12;
constexpr size_t kNodesAt = 16;
constexpr size_t kFingerprintAt = 32;
constexpr size_t kRootAt = 64;
constexpr size_t kSessionAt = 96;
constexpr size_t kPathAt = 128;
constexpr size_t kNodeBytes = 32;
constexpr size_t kPageBytes = 4096;
// The last bytes of the file, in every version.
constexpr size_t kChecksumBytes = 16;

constexpr uint32_t kClosedFlag = 1;

bool ChecksumIsRight(const std::byte* bytes, size_t at) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, at);
  return Get<uint64_t>(bytes, at) == hash.low64 &&
         Get<uint64_t>(bytes, at + 8) == hash.high64;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("session record: ", what));
}

}  // namespace

size_t SessionFileBytes(size_t nodes) {
  return AlignUp(kPathAt + nodes * kNodeBytes + kChecksumBytes, kPageBytes);
}

AlignedBuffer EncodeSession(const SessionFile& file) {
  const cache::SessionRecord& record = file.record;
  const size_t size = SessionFileBytes(record.path.size());
  AlignedBuffer buffer(size);
  std::byte* const bytes = buffer.data();
  std::memcpy(bytes, kMagic, sizeof(kMagic));
  Put<uint32_t>(bytes, kVersionAt, kSessionFormatVersion);
  Put<uint32_t>(bytes, kFlagsAt, record.closed ? kClosedFlag : 0);
  Put<uint64_t>(bytes, kNodesAt, record.path.size());
  PutDigest(bytes, kFingerprintAt, file.fingerprint.digest);
  PutDigest(bytes, kRootAt, record.root.digest);
  PutDigest(bytes, kSessionAt, record.session.digest);
  for (size_t i = 0; i < record.path.size(); ++i) {
    PutDigest(bytes, kPathAt + i * kNodeBytes, record.path[i].digest);
  }
  SealSession({bytes, size});
  return buffer;
}

void SealSession(absl::Span<std::byte> bytes) {
  const size_t at = bytes.size() - kChecksumBytes;
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), at);
  Put<uint64_t>(bytes.data(), at, hash.low64);
  Put<uint64_t>(bytes.data(), at + 8, hash.high64);
}

absl::StatusOr<SessionFile> DecodeSession(absl::Span<const std::byte> bytes) {
  if (bytes.size() < kPageBytes || bytes.size() % kPageBytes != 0) {
    return Damaged(absl::StrCat(bytes.size(), " bytes"));
  }
  const std::byte* const at = bytes.data();
  const size_t checksum_at = bytes.size() - kChecksumBytes;
  if (std::memcmp(at, kMagic, sizeof(kMagic)) != 0) {
    return Damaged("not one");
  }
  if (!ChecksumIsRight(at, checksum_at)) {
    return Damaged("wrong checksum");
  }
  if (const auto version = Get<uint32_t>(at, kVersionAt);
      version != kSessionFormatVersion) {
    return absl::UnimplementedError(
        absl::StrCat("session record: format version ", version, ", not ",
                     kSessionFormatVersion));
  }
  const auto flags = Get<uint32_t>(at, kFlagsAt);
  const auto nodes = Get<uint64_t>(at, kNodesAt);
  if (nodes == 0 || nodes > kMaxSessionNodes ||
      SessionFileBytes(nodes) != bytes.size()) {
    return Damaged(absl::StrCat(nodes, " nodes in ", bytes.size(), " bytes"));
  }
  if ((flags & ~kClosedFlag) != 0 ||
      !AllZero(at, kNodesAt + sizeof(uint64_t), kFingerprintAt) ||
      !AllZero(at, kPathAt + nodes * kNodeBytes, checksum_at)) {
    return Damaged("unused bytes are not zero");
  }
  SessionFile file;
  file.fingerprint.digest = GetDigest(at, kFingerprintAt);
  file.record.closed = (flags & kClosedFlag) != 0;
  file.record.root.digest = GetDigest(at, kRootAt);
  file.record.session.digest = GetDigest(at, kSessionAt);
  file.record.path.resize(nodes);
  for (size_t i = 0; i < nodes; ++i) {
    file.record.path[i].digest = GetDigest(at, kPathAt + i * kNodeBytes);
  }
  return file;
}

absl::StatusOr<SessionFile> ReadSessionFile(Env& env, const std::string& path) {
  EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file,
                      env.OpenForRead(path, {.direct = true}));
  EW_ASSIGN_OR_RETURN(const FileInfo info, file->Stat());
  if (info.size < kPageBytes || info.size % kPageBytes != 0 ||
      info.size > SessionFileBytes(kMaxSessionNodes)) {
    return Damaged(absl::StrCat(info.size, " bytes"));
  }
  const AlignedBuffer buffer(info.size);
  const std::array<MutableBytes, 1> whole = {buffer.first(info.size)};
  EW_ASSIGN_OR_RETURN(const size_t bytes, file->ReadAt(0, whole));
  EW_ASSIGN_OR_RETURN(SessionFile found, DecodeSession(whole[0].first(bytes)));
  if (NameOf(path) != SessionFileName(found.record.id())) {
    return Damaged("under another one's name");
  }
  return found;
}

std::string SessionFileName(const cache::RecordId& id) {
  return absl::StrCat(ToHex(id), kSuffix);
}

std::optional<cache::RecordId> ParseSessionFileName(std::string_view name) {
  if (name.size() < kSuffix.size()) {
    return std::nullopt;
  }
  const std::optional<Digest> id =
      DigestFromHex(name.substr(0, name.size() - kSuffix.size()));
  // Capital digits would be a second name for the same record.
  if (!id.has_value() || SessionFileName(*id) != name) {
    return std::nullopt;
  }
  return id;
}

}  // namespace everwarm::store
