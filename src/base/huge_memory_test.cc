#include "base/huge_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "gtest/gtest.h"

namespace everwarm {
namespace {

TEST(HugeMemoryTest, BeginsOnAHugePageAndIsZero) {
  const std::optional<HugeMemory> memory = HugeMemory::Map(10'000);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2 << 20), 0u);
  ASSERT_GE(memory->size(), 10'000u);
  EXPECT_TRUE(std::all_of(memory->data(), memory->data() + memory->size(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
  memory->data()[memory->size() - 1] = std::byte{1};
}

TEST(HugeMemoryTest, MovesWithoutMovingTheBytes) {
  std::optional<HugeMemory> first = HugeMemory::Map(4096);
  ASSERT_TRUE(first.has_value());
  first->data()[7] = std::byte{9};
  std::byte* const data = first->data();
  HugeMemory second = std::move(*first);
  first.reset();
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.data()[7], std::byte{9});
}

TEST(HugeMemoryTest, MoreThanThereIsGivesNothing) {
  EXPECT_FALSE(
      HugeMemory::Map(std::numeric_limits<size_t>::max() / 4).has_value());
}

}  // namespace
}  // namespace everwarm
