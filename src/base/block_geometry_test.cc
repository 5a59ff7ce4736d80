#include "base/block_geometry.h"

#include <gtest/gtest.h>

#include <vector>

namespace everwarm {
namespace {

// Two layers of K (2 heads, 6 bytes) and V (2 heads, 10 bytes): unequal widths.
BlockGeometry Unequal() { return BlockGeometry(2, 16, {{2, 6}, {2, 10}}); }

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 131 % 251 + 1);
  }
  return bytes;
}

TEST(BlockGeometryTest, SizesFollowFromLayersPlanesAndHeads) {
  const BlockGeometry geometry = Unequal();
  EXPECT_EQ(geometry.token_bytes(), 2u * (2 * 6 + 2 * 10));
  EXPECT_EQ(geometry.PayloadBytes(16), 1024u);
  EXPECT_EQ(geometry.slot_bytes(), 4096u);
  EXPECT_EQ(geometry.PlaneOffset(0, 1), 2u * 6 * 16);
  EXPECT_EQ(geometry.PlaneOffset(1, 0), 512u);
  EXPECT_EQ(geometry.HeadStride(1), 160u);
}

TEST(BlockGeometryTest, PackingAFullBlockGivesTheSlotItself) {
  const BlockGeometry geometry = Unequal();
  const std::vector<std::byte> slot = Pattern(geometry.PayloadBytes(16));
  std::vector<std::byte> packed(slot.size());
  geometry.Pack(slot.data(), 16, packed.data());
  EXPECT_EQ(packed, slot);
}

TEST(BlockGeometryTest, UnpackRestoresTheTokensAndLeavesTheRestAlone) {
  const BlockGeometry geometry = Unequal();
  const std::vector<std::byte> slot = Pattern(geometry.PayloadBytes(16));
  for (const uint32_t tokens : {0u, 1u, 5u, 15u, 16u}) {
    std::vector<std::byte> packed(geometry.PayloadBytes(tokens));
    geometry.Pack(slot.data(), tokens, packed.data());
    std::vector<std::byte> unpacked(slot.size());
    geometry.Unpack(packed.data(), tokens, unpacked.data());
    std::vector<std::byte> copied(slot.size());
    geometry.CopyTokens(slot.data(), tokens, copied.data());
    EXPECT_EQ(unpacked, copied);
    size_t kept = 0;
    for (size_t i = 0; i < slot.size(); ++i) {
      if (unpacked[i] != std::byte{0}) {
        EXPECT_EQ(unpacked[i], slot[i]);
        ++kept;
      }
    }
    EXPECT_EQ(kept, geometry.PayloadBytes(tokens));
  }
}

TEST(BlockGeometryTest, AStateIsWholeHoweverManyTokensLedThere) {
  const BlockGeometry geometry(2, 1, {{1, 24}, {3, 40}});
  EXPECT_TRUE(geometry.is_state());
  EXPECT_FALSE(Unequal().is_state());
  const size_t bytes = 2 * (24 + 3 * 40);
  const std::vector<std::byte> slot = Pattern(bytes);
  for (const uint32_t tokens : {1u, 7u, 64u}) {
    EXPECT_EQ(geometry.PayloadBytes(tokens), bytes);
    std::vector<std::byte> packed(bytes);
    geometry.Pack(slot.data(), tokens, packed.data());
    EXPECT_EQ(packed, slot);
    std::vector<std::byte> copied(bytes);
    geometry.CopyTokens(slot.data(), tokens, copied.data());
    EXPECT_EQ(copied, slot);
  }
  EXPECT_EQ(geometry.PlaneOffset(1, 0), 24 + 3 * 40);
}

}  // namespace
}  // namespace everwarm
