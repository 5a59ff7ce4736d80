// KV bytes that say where they belong: each is a function of the namespace, all
// tokens up to its position, the group, and its place in the slot. Any wrong
// reuse shows. A state is a function of all tokens up to its position, too, and
// what is computed from a wrong one is wrong.
#ifndef EVERWARM_TESTING_KV_CONTENTS_H_
#define EVERWARM_TESTING_KV_CONTENTS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/kv_cache.h"

namespace everwarm::cache {

using Tokens = std::vector<TokenId>;

// count tokens: first, first + 1, ...
inline Tokens Range(TokenId first, size_t count) {
  Tokens tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = first + static_cast<TokenId>(i);
  }
  return tokens;
}

inline Tokens operator+(Tokens left, const Tokens& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline Tokens First(const Tokens& tokens, size_t count) {
  return Tokens(tokens.begin(), tokens.begin() + count);
}

inline LayerGroup FullGroup(uint32_t block_tokens) {
  return {"full", GroupKind::kFull, 0,
          BlockGeometry(2, block_tokens, {{2, 4}, {1, 8}})};
}
inline LayerGroup WindowGroup(uint32_t block_tokens, uint32_t window) {
  return {"window", GroupKind::kWindow, window,
          BlockGeometry(1, block_tokens, {{1, 6}, {2, 5}})};
}
inline LayerGroup LatentGroup(uint32_t block_tokens) {
  return {"latent", GroupKind::kLatent, 0,
          BlockGeometry(3, block_tokens, {{1, 10}})};
}

inline LayerGroup RecurrentGroup(uint32_t bytes) {
  return {"state", GroupKind::kRecurrent, 0,
          BlockGeometry(2, 1, {{1, 12}, {1, bytes}})};
}

// The first two blocks of every sequence are wider, as in another codec.
inline LayerGroup MixedGroup(uint32_t block_tokens) {
  return {"mixed",
          GroupKind::kFull,
          0,
          {2, BlockGeometry(2, block_tokens, {{2, 9}, {1, 8}, {1, 300}}),
           BlockGeometry(2, block_tokens, {{2, 3}, {1, 5}})}};
}

inline CacheLayout FullOnly() { return {16, {FullGroup(16)}}; }
inline CacheLayout FullAndWindow() {
  return {16, {FullGroup(16), WindowGroup(16, 100)}};
}
inline CacheLayout ThreeGroups() {
  return {16, {WindowGroup(16, 20), LatentGroup(16), FullGroup(16)}};
}

inline CacheLayout MixedAndWindow() {
  return {16, {MixedGroup(16), WindowGroup(16, 20)}};
}
inline CacheLayout MixedAndState() {
  return {16, {RecurrentGroup(20), MixedGroup(16)}};
}

inline CacheLayout FullAndState() {
  return {16, {RecurrentGroup(20), FullGroup(16)}};
}
inline CacheLayout WindowAndTwoStates() {
  return {16,
          {FullGroup(16), RecurrentGroup(5000), WindowGroup(16, 20),
           RecurrentGroup(8)}};
}
inline bool HasStates(const CacheLayout& layout) {
  return std::any_of(layout.groups.begin(), layout.groups.end(),
                     [](const LayerGroup& group) {
                       return group.kind == GroupKind::kRecurrent;
                     });
}

inline std::vector<BySpan<BlockGeometry>> Geometries(
    const CacheLayout& layout) {
  std::vector<BySpan<BlockGeometry>> geometries;
  for (const LayerGroup& group : layout.groups) {
    geometries.push_back(group.geometry);
  }
  return geometries;
}

// What the byte at [layer][plane][head][.][index] of a token is, given a number
// that stands for all tokens up to and including it.
inline std::byte ContentByte(uint64_t prefix, uint32_t group, uint32_t row,
                             uint32_t index) {
  uint64_t x = prefix ^ (uint64_t{group} << 48) ^ (uint64_t{row} << 24) ^ index;
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return static_cast<std::byte>(x >> 56);
}

inline uint64_t ExtendPrefix(uint64_t prefix, TokenId token) {
  return (prefix ^ static_cast<uint64_t>(token + 1)) * 0x100000001B3u + 1;
}

inline uint64_t RootPrefix(const NodeId& root) {
  uint64_t prefix = 0;
  std::memcpy(&prefix, root.digest.data(), sizeof(prefix));
  return prefix;
}

// Calls visit(address, right value) for each byte of token `index` of a slot.
template <typename Visit>
void VisitToken(const BlockGeometry& geometry, uint32_t group, uint64_t prefix,
                uint32_t index, std::byte* slot, Visit visit) {
  uint32_t row = 0;
  for (uint32_t layer = 0; layer < geometry.num_layers(); ++layer) {
    for (uint32_t plane = 0; plane < geometry.planes().size(); ++plane) {
      const PlaneGeometry& shape = geometry.planes()[plane];
      for (uint32_t head = 0; head < shape.heads; ++head, ++row) {
        std::byte* const at = slot + geometry.PlaneOffset(layer, plane) +
                              head * geometry.HeadStride(plane) +
                              size_t{index} * shape.token_bytes;
        for (uint32_t i = 0; i < shape.token_bytes; ++i) {
          visit(at + i, ContentByte(prefix, group, row, i));
        }
      }
    }
  }
}

// Threads: one.
class KvContents {
 public:
  explicit KvContents(CacheLayout layout) : layout_(std::move(layout)) {}

  // The bytes of tokens at sequence.length() on, as a kernel writes them.
  void Write(const Sequence& sequence, const Tokens& tokens,
             const NodeId& root) {
    Tokens all(sequence.tokens().begin(), sequence.tokens().end());
    const size_t before = all.size();
    const bool states_good = WrongStateBytes(sequence, all, root) == 0;
    all = std::move(all) + tokens;
    VisitSequence(sequence, all, before, root,
                  [](std::byte* at, std::byte value) { *at = value; });
    VisitStates(sequence, all, root, [&](std::byte* at, std::byte value) {
      *at = states_good ? value : ~value;
    });
  }

  // Empty when every block of the sequence holds what it should and none is
  // missing that the next position needs.
  std::string Check(const Sequence& sequence, const NodeId& root) {
    const Tokens all(sequence.tokens().begin(), sequence.tokens().end());
    size_t wrong = 0;
    VisitSequence(sequence, all, 0, root, [&](std::byte* at, std::byte value) {
      wrong += *at != value ? 1 : 0;
    });
    if (wrong > 0) {
      return std::to_string(wrong) + " wrong bytes";
    }
    if (const size_t bad = WrongStateBytes(sequence, all, root); bad > 0) {
      return std::to_string(bad) + " wrong bytes in states";
    }
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const LayerGroup& group = layout_.groups[g];
      if (group.kind == GroupKind::kRecurrent) {
        if (sequence.blocks(g).size() != 1 ||
            (sequence.blocks(g)[0] == nullptr && !all.empty())) {
          return "group " + std::to_string(g) + " has no state";
        }
        continue;
      }
      const size_t reach = group.kind == GroupKind::kWindow
                               ? std::min<size_t>(group.window - 1, all.size())
                               : all.size();
      for (size_t p = all.size() - reach; p < all.size(); ++p) {
        if (sequence.blocks(g)[p / layout_.block_tokens] == nullptr) {
          return "group " + group.name + " has nothing at " + std::to_string(p);
        }
      }
    }
    return "";
  }

  // Whether these bytes are what a block of that identity holds. Only blocks
  // below tokens that were written or checked are known.
  bool Verify(const BlockIdentity& identity,
              const std::vector<std::byte>& packed) {
    const auto parent = prefixes_.find(identity.parent);
    if (parent == prefixes_.end()) {
      return false;
    }
    const BlockGeometry& geometry =
        layout_.groups[identity.key.group].geometry.At(identity.start /
                                                       layout_.block_tokens);
    std::vector<std::byte> slot(geometry.slot_bytes());
    uint64_t prefix = parent->second;
    for (uint32_t i = 0; i < identity.tokens.size(); ++i) {
      prefix = ExtendPrefix(prefix, identity.tokens[i]);
      VisitToken(geometry, identity.key.group, prefix,
                 geometry.is_state() ? 0 : i, slot.data(),
                 [](std::byte* at, std::byte value) { *at = value; });
    }
    std::vector<std::byte> expected(packed.size());
    geometry.Pack(slot.data(), static_cast<uint32_t>(identity.tokens.size()),
                  expected.data());
    return expected == packed;
  }

 private:
  // Every byte of every state that is there, and what it is behind all of
  // `all`.
  template <typename Visit>
  void VisitStates(const Sequence& sequence, const Tokens& all,
                   const NodeId& root, Visit visit) const {
    uint64_t prefix = RootPrefix(root);
    for (const TokenId token : all) {
      prefix = ExtendPrefix(prefix, token);
    }
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      if (layout_.groups[g].kind == GroupKind::kRecurrent &&
          sequence.blocks(g)[0] != nullptr) {
        VisitToken(layout_.groups[g].geometry.rest, static_cast<uint32_t>(g),
                   prefix, 0, sequence.blocks(g)[0],
                   [&](std::byte* at, std::byte value) {
                     visit(at, all.empty() ? std::byte{0} : value);
                   });
      }
    }
  }
  size_t WrongStateBytes(const Sequence& sequence, const Tokens& all,
                         const NodeId& root) const {
    size_t wrong = 0;
    VisitStates(sequence, all, root, [&](std::byte* at, std::byte value) {
      wrong += *at != value ? 1 : 0;
    });
    return wrong;
  }

  // Every byte of every block that is there, of positions from `from` on.
  template <typename Visit>
  void VisitSequence(const Sequence& sequence, const Tokens& all, size_t from,
                     const NodeId& root, Visit visit) {
    uint64_t prefix = RootPrefix(root);
    NodeId id = root;
    for (size_t p = 0; p < all.size(); ++p) {
      if (p % layout_.block_tokens == 0) {
        prefixes_[id] = prefix;
      }
      prefix = ExtendPrefix(prefix, all[p]);
      if ((p + 1) % layout_.block_tokens == 0) {
        id = ChildId(
            id, absl::MakeConstSpan(all).subspan(p + 1 - layout_.block_tokens,
                                                 layout_.block_tokens));
      }
      for (size_t g = 0; g < layout_.groups.size() && p >= from; ++g) {
        if (layout_.groups[g].kind == GroupKind::kRecurrent) {
          continue;
        }
        const size_t span = p / layout_.block_tokens;
        std::byte* const slot = span < sequence.blocks(g).size()
                                    ? sequence.blocks(g)[span]
                                    : nullptr;
        if (slot != nullptr) {
          VisitToken(layout_.groups[g].geometry.At(static_cast<uint32_t>(span)),
                     static_cast<uint32_t>(g), prefix,
                     static_cast<uint32_t>(p % layout_.block_tokens), slot,
                     visit);
        }
      }
    }
  }

  const CacheLayout layout_;
  // What stands for all tokens up to a node's end, by its id.
  absl::flat_hash_map<NodeId, uint64_t> prefixes_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_TESTING_KV_CONTENTS_H_
