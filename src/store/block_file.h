// The format of one block's file: a header page and a payload (docs/format.md).
// A state's file is the same in all but the length of its payload, and is told
// by its version.
//
// Pure functions over bytes: no files here. Whatever is read may be damaged,
// cut or made by somebody else; no input crashes, and every bound is checked.
#ifndef EVERWARM_STORE_BLOCK_FILE_H_
#define EVERWARM_STORE_BLOCK_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "base/by_span.h"
#include "base/ids.h"
#include "cache/tier.h"

namespace everwarm::store {

// The header is exactly this long; the payload follows it.
inline constexpr size_t kHeaderBytes = 4096;
inline constexpr uint32_t kBlockVersion = 1;
inline constexpr uint32_t kStateVersion = 2;

inline constexpr uint32_t kMaxBlockTokens = 256;
inline constexpr size_t kMaxPlanes = 16;
inline constexpr size_t kMaxCodecBytes = 32;
// Larger payloads are refused: no slot of a real model comes near it.
inline constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 32;

// XXH3-128 of a payload: the low and the high half.
struct PayloadChecksum {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const PayloadChecksum&,
                         const PayloadChecksum&) = default;
};
PayloadChecksum ChecksumPayload(absl::Span<const std::byte> payload);

// What a block of one layer group looks like on the disk.
struct GroupScheme {
  // "f16", "q8", ...: printable ASCII, 1 to kMaxCodecBytes characters.
  std::string codec;
  BlockGeometry geometry;
  friend bool operator==(const GroupScheme&, const GroupScheme&) = default;
};
// That of the group's block or state that begins at `start`.
inline const GroupScheme& SchemeAt(const BySpan<GroupScheme>& group,
                                   TokenPos start) {
  return group.AtStart(start, group.rest.geometry.block_tokens());
}
// kInvalidArgument: something that a header cannot say.
absl::Status ValidateScheme(const GroupScheme& scheme);
// Tokens that one file can stand for. A state's geometry does not say how long
// a span is.
uint32_t MostTokens(const BlockGeometry& geometry);

struct BlockHeader {
  cache::BlockIdentity identity;
  Fingerprint fingerprint;
  GroupScheme scheme;
  PayloadChecksum checksum;

  uint32_t num_tokens() const {
    return static_cast<uint32_t>(identity.tokens.size());
  }
  // A whole span, or a state: the payload is the slot as it is. Else it is a
  // tail, packed.
  bool full() const {
    return scheme.geometry.is_state() ||
           num_tokens() == scheme.geometry.block_tokens();
  }
  size_t payload_bytes() const {
    return scheme.geometry.PayloadBytes(num_tokens());
  }
  // With the zeros up to the next page, as it lies in the file.
  size_t padded_payload_bytes() const {
    return AlignUp(payload_bytes(), kSlotAlignment);
  }
  size_t file_bytes() const { return kHeaderBytes + padded_payload_bytes(); }
};

// Writes the page [kHeaderBytes].
// Errors: kInvalidArgument, the header says what DecodeHeader() would refuse.
absl::Status EncodeHeader(const BlockHeader& header, std::byte* page);

// Errors: kDataLoss, damaged or never a header; the message says where.
//         kFailedPrecondition, an intact header of another format version.
absl::StatusOr<BlockHeader> DecodeHeader(absl::Span<const std::byte> page);

// Writes the checksum over the rest of the page, as the last step of
// EncodeHeader(); tests use it to make headers that lie.
void SealHeader(std::byte* page);

// Whether `header` is what `wanted` asks for: every field, every token.
// kDataLoss names the first difference.
absl::Status CheckIdentity(const BlockHeader& header,
                           const Fingerprint& fingerprint,
                           const GroupScheme& scheme,
                           const cache::BlockIdentity& wanted);

// As BlockGeometry::Unpack(slot, tokens, slot): spreads the packed tokens at
// the start of the slot to where they belong, without a second buffer.
void UnpackInPlace(const BlockGeometry& geometry, uint32_t tokens,
                   std::byte* slot);

// "<64 hex digits>.<group>.kv"
std::string BlockFileName(const BlockKey& key);
// Nothing for any other name.
std::optional<BlockKey> ParseBlockFileName(std::string_view name);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_BLOCK_FILE_H_
