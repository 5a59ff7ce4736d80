// Where the bytes of a block lie: the one description of a slot that cache,
// store, kernels and models share.
//
// A slot holds, outermost first, [layer][plane][head][token][token_bytes]. A
// plane is one kind of bytes of a codec (K, V, scales, ...). A row is the
// [token][token_bytes] part of one layer, plane and head.
//
// A geometry of one token is a state's: the memory of a recurrent layer at one
// position. A slot of it is whole, however many tokens led there.
#ifndef EVERWARM_BASE_BLOCK_GEOMETRY_H_
#define EVERWARM_BASE_BLOCK_GEOMETRY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace everwarm {

// Slots, payloads and file offsets are multiples of this (O_DIRECT needs it).
inline constexpr size_t kSlotAlignment = 4096;

constexpr size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct PlaneGeometry {
  uint32_t heads = 0;
  // Bytes of one token in one head.
  uint32_t token_bytes = 0;
  friend bool operator==(const PlaneGeometry&, const PlaneGeometry&) = default;
};

// Threads: immutable, any.
class BlockGeometry {
 public:
  BlockGeometry() = default;
  BlockGeometry(uint32_t num_layers, uint32_t block_tokens,
                std::vector<PlaneGeometry> planes);

  uint32_t num_layers() const { return num_layers_; }
  uint32_t block_tokens() const { return block_tokens_; }
  const std::vector<PlaneGeometry>& planes() const { return planes_; }

  bool is_state() const { return block_tokens_ == 1; }

  // Bytes of one token over all layers, planes and heads; of a whole state.
  size_t token_bytes() const { return token_bytes_; }
  // Bytes of the first `tokens` tokens, without padding; of a state, which is
  // whole, whatever their number.
  size_t PayloadBytes(uint32_t tokens) const {
    return token_bytes_ * Columns(tokens);
  }
  // Bytes of a slot in the pool: a full block, rounded up to kSlotAlignment.
  size_t slot_bytes() const {
    return AlignUp(PayloadBytes(block_tokens_), kSlotAlignment);
  }
  // Offset in the slot of [layer][plane][0][0].
  size_t PlaneOffset(uint32_t layer, uint32_t plane) const;
  // Bytes from one head's row to the next within a plane.
  size_t HeadStride(uint32_t plane) const {
    return size_t{planes_[plane].token_bytes} * block_tokens_;
  }

  // Copies the first `tokens` tokens of every row, in slot order, to `packed`
  // [PayloadBytes(tokens)]. For a full block and for a state this is the slot
  // itself. Bytes of later tokens are neither read nor copied, so somebody may
  // be writing them.
  void Pack(const std::byte* slot, uint32_t tokens, std::byte* packed) const;
  // The inverse; bytes of later tokens are left alone.
  void Unpack(const std::byte* packed, uint32_t tokens, std::byte* slot) const;
  // Copies the first `tokens` tokens of every row from slot to slot.
  void CopyTokens(const std::byte* from, uint32_t tokens, std::byte* to) const;

  friend bool operator==(const BlockGeometry&, const BlockGeometry&) = default;

 private:
  // Of each row, for the first `tokens` tokens.
  uint32_t Columns(uint32_t tokens) const { return is_state() ? 1 : tokens; }
  template <typename Copy>
  void ForEachRow(uint32_t tokens, Copy copy) const;

  uint32_t num_layers_ = 0;
  uint32_t block_tokens_ = 0;
  std::vector<PlaneGeometry> planes_;
  size_t token_bytes_ = 0;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_BLOCK_GEOMETRY_H_
