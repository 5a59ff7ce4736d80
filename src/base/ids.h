// Identities: what a block is, and what its bytes depend on.
#ifndef EVERWARM_BASE_IDS_H_
#define EVERWARM_BASE_IDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace everwarm {

// A token of the model's vocabulary. Negative values are never stored.
using TokenId = int32_t;
// A position in a sequence; also a number of tokens from its start.
using TokenPos = uint32_t;

using Digest = std::array<uint8_t, 32>;

// 64 lower-case hexadecimal digits.
std::string ToHex(const Digest& digest);
// Nothing unless `hex` is exactly 64 hexadecimal digits.
std::optional<Digest> DigestFromHex(std::string_view hex);

// What the bytes of a block depend on besides its tokens: weights, KV scheme of
// each group, block size, numerics version. Names a directory of the store.
struct Fingerprint {
  Digest digest{};
  std::string hex() const { return ToHex(digest); }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// SHA-256(parent id, the span's token ids as 32-bit little-endian numbers); for
// a root SHA-256(fingerprint, namespace). Names a node of the token tree, and
// with a group its file. A hash finds; tokens are compared before anything is
// used.
struct NodeId {
  Digest digest{};
  std::string hex() const { return ToHex(digest); }
  friend bool operator==(const NodeId&, const NodeId&) = default;
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodeId& id) {
    return H::combine_contiguous(std::move(h), id.digest.data(),
                                 id.digest.size());
  }
};

NodeId RootId(const Fingerprint& fingerprint, std::string_view name_space);
NodeId ChildId(const NodeId& parent, absl::Span<const TokenId> tokens);

// Index of a layer group of the model, from 0.
using GroupIndex = uint16_t;

// One file of the store: a node's block for one group.
struct BlockKey {
  NodeId node;
  GroupIndex group = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const BlockKey& key) {
    return H::combine(std::move(h), key.node, key.group);
  }
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_IDS_H_
