#include "cache/block_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "gtest/gtest.h"

namespace everwarm::cache {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// One token is 64 KiB: 16 tokens are 1 MiB.
BlockGeometry MebibyteBlock() { return BlockGeometry(1, 16, {{1, 65536}}); }
BlockGeometry SmallBlock() { return BlockGeometry(1, 16, {{1, 100}}); }

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(BlockPoolTest, CountsSlotsExactly) {
  BlockPool pool({MebibyteBlock(), SmallBlock()});
  EXPECT_EQ(pool.used_bytes(), 0);
  BlockRef a = pool.Allocate(0, 0).value();
  EXPECT_EQ(pool.used_bytes(), kMiB);
  BlockRef b = pool.Allocate(1, 0).value();
  EXPECT_EQ(pool.used_bytes(), kMiB + 4096);
  const BlockRef lent = a;
  a = BlockRef();
  EXPECT_EQ(pool.used_bytes(), kMiB + 4096);
  b = BlockRef();
  EXPECT_EQ(pool.used_bytes(), kMiB);
}

TEST(BlockPoolTest, FirstSpansHaveSlotsOfTheirOwnSize) {
  BlockPool pool({SmallBlock(), {2, MebibyteBlock(), SmallBlock()}});
  EXPECT_EQ(pool.geometry(1, 0), MebibyteBlock());
  EXPECT_EQ(pool.geometry(1, 31), MebibyteBlock());
  EXPECT_EQ(pool.geometry(1, 32), SmallBlock());
  BlockRef first = pool.Allocate(1, 16).value();
  EXPECT_EQ(pool.used_bytes(), kMiB);
  EXPECT_EQ(first->geometry(), MebibyteBlock());
  EXPECT_EQ(first->group(), 1);
  const BlockRef rest = pool.Allocate(1, 32).value();
  EXPECT_EQ(pool.used_bytes(), kMiB + 4096);
  EXPECT_EQ(rest->geometry(), SmallBlock());
  const std::byte* const place = first->data();
  first = BlockRef();
  EXPECT_EQ(pool.used_bytes(), 4096);
  // What is given back serves its own kind.
  EXPECT_NE(pool.Allocate(1, 48).value()->data(), place);
  EXPECT_EQ(pool.Allocate(1, 0).value()->data(), place);
}

TEST(BlockPoolTest, SlotsAreAlignedAndApart) {
  BlockPool pool({SmallBlock()});
  const BlockRef a = pool.Allocate(0, 0).value();
  const BlockRef b = pool.Allocate(0, 0).value();
  EXPECT_EQ(reinterpret_cast<size_t>(a->data()) % kSlotAlignment, 0);
  EXPECT_GE(std::abs(a->data() - b->data()), 4096);
  EXPECT_EQ(a->group(), 0);
}

TEST(BlockPoolTest, AFreshSlotIsNotFilled) {
  BlockPool pool({SmallBlock()});
  BlockRef block = pool.Allocate(0, 0).value();
  block->set_filled(16);
  block = BlockRef();
  EXPECT_EQ(pool.Allocate(0, 0).value()->filled(), 0);
}

TEST(BlockPoolTest, UniqueMeansNobodyElseHasAShare) {
  BlockPool pool({SmallBlock()});
  BlockRef block = pool.Allocate(0, 0).value();
  EXPECT_TRUE(block.unique());
  {
    const BlockRef share = block;
    EXPECT_FALSE(block.unique());
  }
  EXPECT_TRUE(block.unique());
  const BlockRef moved = std::move(block);
  EXPECT_TRUE(moved.unique());
}

TEST(BlockPoolTest, ChunksWithoutUsedSlotsAreUnmappedButForOne) {
  BlockPool pool({MebibyteBlock()});
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 24; ++i) {
    blocks.push_back(pool.Allocate(0, 0).value());
  }
  EXPECT_EQ(pool.mapped_bytes(), 24 * kMiB);
  blocks.clear();
  EXPECT_EQ(pool.mapped_bytes(), 8 * kMiB);
}

TEST(BlockPoolTest, UseAcrossAChunksEdgeDoesNotFlap) {
  BlockPool pool({MebibyteBlock()});
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(pool.Allocate(0, 0).value());
  }
  const std::byte* slot = nullptr;
  for (int i = 0; i < 10; ++i) {
    const BlockRef ninth = pool.Allocate(0, 0).value();
    EXPECT_EQ(pool.mapped_bytes(), 16 * kMiB);
    if (slot != nullptr) {
      EXPECT_EQ(ninth->data(), slot);
    }
    slot = ninth->data();
  }
}

TEST(BlockPoolTest, ASlotLargerThanAChunkHasOneOfItsOwn) {
  BlockPool pool({BlockGeometry(1, 16, {{1, 1 << 20}})});
  const BlockRef block = pool.Allocate(0, 0).value();
  std::memset(block->data(), 1, 16 * kMiB);
  EXPECT_EQ(pool.mapped_bytes(), 16 * kMiB);
}

TEST(BlockPoolTest, NoMoreMemoryIsAnErrorAndNotTheEnd) {
  // 2^31 tokens-bytes by 2^10 heads by 2^8 layers: more than an address space.
  BlockPool pool(
      {BlockGeometry(1 << 8, 1 << 8, {{1 << 10, 1u << 24}}), SmallBlock()});
  EXPECT_EQ(pool.Allocate(0, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_TRUE(pool.Allocate(1, 0).ok());
}

TEST(BlockPoolTest, ScatteredFreeSlotsGiveTheirMemoryBack) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer's own memory is several times that";
#endif
  BlockPool pool({MebibyteBlock()});
  std::vector<BlockRef> blocks;
  const size_t before = ResidentBytes();
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(pool.Allocate(0, 0).value());
    std::memset(blocks.back()->data(), 1, kMiB);
  }
  EXPECT_GE(ResidentBytes(), before + 60 * kMiB);
  // Every chunk keeps one slot in use.
  for (int i = 0; i < 64; ++i) {
    if (i % 8 != 0) {
      blocks[i] = BlockRef();
    }
  }
  EXPECT_EQ(pool.used_bytes(), 8 * kMiB);
  EXPECT_LE(ResidentBytes(), before + (8 + 8 + 4) * kMiB);
}

TEST(BlockPoolTest, ManyThreadsShareAndGiveBack) {
  BlockPool pool({SmallBlock(), MebibyteBlock()});
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&pool, seed] {
      std::mt19937 random(seed);
      std::vector<BlockRef> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() > 20 || (!mine.empty() && random() % 2 == 0)) {
          std::swap(mine[random() % mine.size()], mine.back());
          if (*mine.back()->data() != std::byte(mine.back()->filled())) {
            ADD_FAILURE() << "somebody else wrote to this slot";
          }
          mine.pop_back();
        } else {
          BlockRef block = pool.Allocate(i % 50 == 0 ? 1 : 0, 0).value();
          block->set_filled(random() % 16);
          *block->data() = std::byte(block->filled());
          mine.push_back(block);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_LE(pool.mapped_bytes(), 8 * kMiB);
}

}  // namespace
}  // namespace everwarm::cache
