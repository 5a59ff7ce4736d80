#include "store/block_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "store/file_fields.h"
#include "xxhash.h"

namespace everwarm::store {
namespace {

// The shortest span.
constexpr uint32_t kMinBlockTokens = 16;

constexpr char kMagic[8] = {'E', 'W', 'B', 'L', 'O', 'C', 'K', '\n'};

// Where each field lies in the page. All numbers are little-endian.
constexpr size_t kVersionAt = 8;
constexpr size_t kHeaderBytesAt = 12;
constexpr size_t kGroupAt = 16;
constexpr size_t kNumPlanesAt = 18;
constexpr size_t kNumLayersAt = 20;
constexpr size_t kBlockTokensAt = 24;
constexpr size_t kNumTokensAt = 28;
constexpr size_t kStartAt = 32;
constexpr size_t kPayloadBytesAt = 40;
constexpr size_t kPayloadChecksumAt = 48;
constexpr size_t kFingerprintAt = 64;
constexpr size_t kRootAt = 96;
constexpr size_t kParentAt = 128;
constexpr size_t kNodeAt = 160;
constexpr size_t kCodecAt = 192;
constexpr size_t kPlanesAt = kCodecAt + kMaxCodecBytes;
constexpr size_t kPlaneBytes = 8;
constexpr size_t kTokensAt = 1024;
constexpr size_t kTokenBytes = 4;
// In every version, so that an intact header of another one can be told from a
// damaged one.
constexpr size_t kHeaderChecksumAt = kHeaderBytes - 8;

static_assert(kPlanesAt + kMaxPlanes * kPlaneBytes <= kTokensAt);
static_assert(kTokensAt + kMaxBlockTokens * kTokenBytes <= kHeaderChecksumAt);

// XXH3-64 of the page as if its last eight bytes were zero.
uint64_t ChecksumHeader(const std::byte* page) {
  std::array<std::byte, kHeaderBytes> copy{};
  std::memcpy(copy.data(), page, kHeaderChecksumAt);
  return XXH3_64bits(copy.data(), copy.size());
}

absl::Status ValidateGeometry(const BlockGeometry& geometry) {
  const uint32_t tokens = geometry.block_tokens();
  if (!geometry.is_state() &&
      (tokens < kMinBlockTokens || tokens > kMaxBlockTokens ||
       !std::has_single_bit(tokens))) {
    return absl::InvalidArgumentError(
        absl::StrCat("block of ", tokens, " tokens"));
  }
  if (geometry.planes().empty() || geometry.planes().size() > kMaxPlanes) {
    return absl::InvalidArgumentError(
        absl::StrCat(geometry.planes().size(), " planes"));
  }
  if (geometry.num_layers() == 0) {
    return absl::InvalidArgumentError("no layers");
  }
  // In steps that cannot wrap, whatever the numbers are.
  uint64_t per_layer = 0;
  for (const PlaneGeometry& plane : geometry.planes()) {
    const uint64_t bytes = uint64_t{plane.heads} * plane.token_bytes;
    if (bytes == 0 || bytes > kMaxPayloadBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "plane of ", plane.heads, " heads of ", plane.token_bytes, " bytes"));
    }
    per_layer += bytes;
  }
  if (per_layer > kMaxPayloadBytes / tokens / geometry.num_layers()) {
    return absl::InvalidArgumentError("block too large");
  }
  return absl::OkStatus();
}

// What holds for every block, whatever the model.
absl::Status ValidateHeader(const BlockHeader& header) {
  EW_RETURN_IF_ERROR(ValidateScheme(header.scheme));
  const cache::BlockIdentity& identity = header.identity;
  const BlockGeometry& geometry = header.scheme.geometry;
  const uint32_t most = MostTokens(geometry);
  if (identity.tokens.empty() || identity.tokens.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(identity.tokens.size(), " tokens in a block of ", most));
  }
  const uint32_t span =
      geometry.is_state() ? kMinBlockTokens : geometry.block_tokens();
  if (identity.start % span != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("start ", identity.start, " inside a span"));
  }
  if ((identity.start == 0) != (identity.parent == identity.root)) {
    return absl::InvalidArgumentError(
        absl::StrCat("start ", identity.start, " does not fit the parent"));
  }
  for (const TokenId token : identity.tokens) {
    if (token < 0) {
      return absl::InvalidArgumentError(absl::StrCat("token ", token));
    }
  }
  if (identity.key.node != ChildId(identity.parent, identity.tokens)) {
    return absl::InvalidArgumentError("node id is not that of the tokens");
  }
  return absl::OkStatus();
}

uint32_t VersionOf(const BlockGeometry& geometry) {
  return geometry.is_state() ? kStateVersion : kBlockVersion;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("block header: ", what));
}

// Magic, length, checksum and version: what must hold before a field is read.
absl::Status CheckEnvelope(absl::Span<const std::byte> page) {
  if (page.size() < kHeaderBytes) {
    return Damaged(absl::StrCat("only ", page.size(), " bytes"));
  }
  if (std::memcmp(page.data(), kMagic, sizeof(kMagic)) != 0) {
    return Damaged("not a block file");
  }
  if (Get<uint64_t>(page.data(), kHeaderChecksumAt) !=
      ChecksumHeader(page.data())) {
    return Damaged("wrong checksum");
  }
  const auto version = Get<uint32_t>(page.data(), kVersionAt);
  if (version != kBlockVersion && version != kStateVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("block header: format version ", version, ", not ",
                     kBlockVersion, " or ", kStateVersion));
  }
  return absl::OkStatus();
}

absl::StatusOr<GroupScheme> DecodeScheme(const std::byte* page) {
  const auto num_planes = Get<uint16_t>(page, kNumPlanesAt);
  if (num_planes > kMaxPlanes) {
    return Damaged(absl::StrCat(num_planes, " planes"));
  }
  std::vector<PlaneGeometry> planes(num_planes);
  for (size_t i = 0; i < num_planes; ++i) {
    const size_t at = kPlanesAt + i * kPlaneBytes;
    planes[i] = {Get<uint32_t>(page, at), Get<uint32_t>(page, at + 4)};
  }
  GroupScheme scheme;
  const char* codec = reinterpret_cast<const char*>(page + kCodecAt);
  scheme.codec.assign(codec, strnlen(codec, kMaxCodecBytes));
  if (!AllZero(page, kCodecAt + scheme.codec.size(), kPlanesAt) ||
      !AllZero(page, kPlanesAt + num_planes * kPlaneBytes, kTokensAt)) {
    return Damaged("unused bytes are not zero");
  }
  scheme.geometry =
      BlockGeometry(Get<uint32_t>(page, kNumLayersAt),
                    Get<uint32_t>(page, kBlockTokensAt), std::move(planes));
  return scheme;
}

}  // namespace

PayloadChecksum ChecksumPayload(absl::Span<const std::byte> payload) {
  const XXH128_hash_t hash = XXH3_128bits(payload.data(), payload.size());
  return {hash.low64, hash.high64};
}

uint32_t MostTokens(const BlockGeometry& geometry) {
  return geometry.is_state() ? kMaxBlockTokens : geometry.block_tokens();
}

absl::Status ValidateScheme(const GroupScheme& scheme) {
  if (scheme.codec.empty() || scheme.codec.size() > kMaxCodecBytes ||
      !std::all_of(scheme.codec.begin(), scheme.codec.end(),
                   [](char c) { return c > ' ' && c <= '~'; })) {
    return absl::InvalidArgumentError("codec is not a short printable name");
  }
  return ValidateGeometry(scheme.geometry);
}

absl::Status EncodeHeader(const BlockHeader& header, std::byte* page) {
  EW_RETURN_IF_ERROR(ValidateHeader(header));
  const cache::BlockIdentity& identity = header.identity;
  const BlockGeometry& geometry = header.scheme.geometry;
  std::memset(page, 0, kHeaderBytes);
  std::memcpy(page, kMagic, sizeof(kMagic));
  Put<uint32_t>(page, kVersionAt, VersionOf(geometry));
  Put<uint32_t>(page, kHeaderBytesAt, kHeaderBytes);
  Put<uint16_t>(page, kGroupAt, identity.key.group);
  Put<uint16_t>(page, kNumPlanesAt,
                static_cast<uint16_t>(geometry.planes().size()));
  Put<uint32_t>(page, kNumLayersAt, geometry.num_layers());
  Put<uint32_t>(page, kBlockTokensAt, geometry.block_tokens());
  Put<uint32_t>(page, kNumTokensAt, header.num_tokens());
  Put<uint32_t>(page, kStartAt, identity.start);
  Put<uint64_t>(page, kPayloadBytesAt, header.payload_bytes());
  Put<uint64_t>(page, kPayloadChecksumAt, header.checksum.low);
  Put<uint64_t>(page, kPayloadChecksumAt + 8, header.checksum.high);
  PutDigest(page, kFingerprintAt, header.fingerprint.digest);
  PutDigest(page, kRootAt, identity.root.digest);
  PutDigest(page, kParentAt, identity.parent.digest);
  PutDigest(page, kNodeAt, identity.key.node.digest);
  std::memcpy(page + kCodecAt, header.scheme.codec.data(),
              header.scheme.codec.size());
  for (size_t i = 0; i < geometry.planes().size(); ++i) {
    const size_t at = kPlanesAt + i * kPlaneBytes;
    Put<uint32_t>(page, at, geometry.planes()[i].heads);
    Put<uint32_t>(page, at + 4, geometry.planes()[i].token_bytes);
  }
  for (size_t i = 0; i < identity.tokens.size(); ++i) {
    Put<uint32_t>(page, kTokensAt + i * kTokenBytes,
                  static_cast<uint32_t>(identity.tokens[i]));
  }
  SealHeader(page);
  return absl::OkStatus();
}

void SealHeader(std::byte* page) {
  Put<uint64_t>(page, kHeaderChecksumAt, ChecksumHeader(page));
}

absl::StatusOr<BlockHeader> DecodeHeader(absl::Span<const std::byte> bytes) {
  EW_RETURN_IF_ERROR(CheckEnvelope(bytes));
  const std::byte* page = bytes.data();
  if (Get<uint32_t>(page, kHeaderBytesAt) != kHeaderBytes) {
    return Damaged("wrong header length");
  }
  BlockHeader header;
  EW_ASSIGN_OR_RETURN(header.scheme, DecodeScheme(page));
  if (Get<uint32_t>(page, kVersionAt) != VersionOf(header.scheme.geometry)) {
    return Damaged("another version's block size");
  }
  const auto num_tokens = Get<uint32_t>(page, kNumTokensAt);
  if (num_tokens > kMaxBlockTokens) {
    return Damaged(absl::StrCat(num_tokens, " tokens"));
  }
  cache::BlockIdentity& identity = header.identity;
  identity.key.group = Get<uint16_t>(page, kGroupAt);
  identity.key.node.digest = GetDigest(page, kNodeAt);
  identity.parent.digest = GetDigest(page, kParentAt);
  identity.root.digest = GetDigest(page, kRootAt);
  identity.start = Get<uint32_t>(page, kStartAt);
  identity.tokens.resize(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) {
    identity.tokens[i] =
        static_cast<TokenId>(Get<uint32_t>(page, kTokensAt + i * kTokenBytes));
  }
  header.fingerprint.digest = GetDigest(page, kFingerprintAt);
  header.checksum = {Get<uint64_t>(page, kPayloadChecksumAt),
                     Get<uint64_t>(page, kPayloadChecksumAt + 8)};
  if (!AllZero(page, kStartAt + 4, kPayloadBytesAt) ||
      !AllZero(page, kTokensAt + num_tokens * kTokenBytes, kHeaderChecksumAt)) {
    return Damaged("unused bytes are not zero");
  }
  if (const absl::Status valid = ValidateHeader(header); !valid.ok()) {
    return Damaged(valid.message());
  }
  if (Get<uint64_t>(page, kPayloadBytesAt) != header.payload_bytes()) {
    return Damaged("payload length does not fit the tokens");
  }
  return header;
}

absl::Status CheckIdentity(const BlockHeader& header,
                           const Fingerprint& fingerprint,
                           const GroupScheme& scheme,
                           const cache::BlockIdentity& wanted) {
  const cache::BlockIdentity& found = header.identity;
  if (header.fingerprint != fingerprint) {
    return Damaged("another fingerprint");
  }
  if (header.scheme != scheme) {
    return Damaged("another codec or geometry");
  }
  if (found.key != wanted.key || found.parent != wanted.parent ||
      found.root != wanted.root || found.start != wanted.start) {
    return Damaged("another block");
  }
  if (found.tokens != wanted.tokens) {
    return Damaged("other tokens");
  }
  return absl::OkStatus();
}

void UnpackInPlace(const BlockGeometry& geometry, uint32_t tokens,
                   std::byte* slot) {
  // From the last row to the first: a row never moves to before where it lies,
  // so nothing is overwritten before it has moved.
  size_t packed_end = geometry.PayloadBytes(tokens);
  size_t slot_end = geometry.PayloadBytes(geometry.block_tokens());
  for (uint32_t layer = geometry.num_layers(); layer-- > 0;) {
    for (size_t plane = geometry.planes().size(); plane-- > 0;) {
      const PlaneGeometry& shape = geometry.planes()[plane];
      const size_t row_bytes = size_t{shape.token_bytes} * tokens;
      const size_t stride = geometry.HeadStride(static_cast<uint32_t>(plane));
      for (uint32_t head = shape.heads; head-- > 0;) {
        packed_end -= row_bytes;
        slot_end -= stride;
        std::memmove(slot + slot_end, slot + packed_end, row_bytes);
      }
    }
  }
}

std::string BlockFileName(const BlockKey& key) {
  return absl::StrCat(key.node.hex(), ".", key.group, ".kv");
}

std::optional<BlockKey> ParseBlockFileName(std::string_view name) {
  constexpr size_t kHexDigits = 64;
  if (name.size() < kHexDigits) {
    return std::nullopt;
  }
  const std::optional<Digest> digest =
      DigestFromHex(name.substr(0, kHexDigits));
  if (!digest.has_value()) {
    return std::nullopt;
  }
  BlockKey key;
  key.node.digest = *digest;
  // The group is read by trying what writing it would give: one form only.
  std::string_view rest = name.substr(kHexDigits);
  uint32_t group = 0;
  if (rest.size() < 2 || rest[0] != '.') {
    return std::nullopt;
  }
  rest.remove_prefix(1);
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(rest.data(), dot), &group) ||
      group > UINT16_MAX) {
    return std::nullopt;
  }
  key.group = static_cast<GroupIndex>(group);
  if (BlockFileName(key) != name) {
    return std::nullopt;
  }
  return key;
}

}  // namespace everwarm::store
