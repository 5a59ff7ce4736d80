#include "kernels/work_split.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace everwarm::kernels {
namespace {

AttentionShape Shape(uint32_t window = 0) {
  AttentionShape shape;
  shape.num_heads = 6;
  shape.num_kv_heads = 2;
  shape.k_dim = 64;
  shape.v_dim = 64;
  shape.window = window;
  return shape;
}

// Block tables with addresses that nobody reads.
class Tables {
 public:
  explicit Tables(size_t count) : tables_(count) {}
  // Gives table `t` blocks for `tokens` tokens; the first `shared` tokens are
  // those of table `from`.
  std::byte* const* Fill(size_t t, TokenPos tokens, size_t from = 0,
                         TokenPos shared = 0) {
    std::vector<std::byte*>& table = tables_[t];
    for (size_t b = 0; b < (tokens + 63) / 64; ++b) {
      table.push_back(b < shared / 64 ? tables_[from][b] : Fresh());
    }
    return table.data();
  }

 private:
  std::byte* Fresh() { return reinterpret_cast<std::byte*>(++fresh_ * 4096); }
  std::vector<std::vector<std::byte*>> tables_;
  uintptr_t fresh_ = 0;
};

// How often each partition of a row is worked on per KV head.
using Coverage = std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int>;

Coverage Covered(const WorkSplit& split) {
  Coverage coverage;
  for (const WorkItem& item : split.items()) {
    const WorkGroup& group = split.groups()[item.group];
    for (uint32_t m = 0; m < group.num_members; ++m) {
      const uint32_t row = split.members()[group.first_member + m];
      const RowWork& work = split.rows()[row];
      for (uint32_t p = std::max(item.first_partition, work.first_partition);
           p < std::min(item.last_partition, work.last_partition); ++p) {
        ++coverage[{row, p, item.kv_head}];
      }
    }
  }
  return coverage;
}

void ExpectEverythingOnce(const WorkSplit& split, const AttentionShape& shape,
                          absl::Span<const AttentionRow> rows) {
  const Coverage coverage = Covered(split);
  size_t expected = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const VisibleSpan span = Visible(shape, rows[r]);
    const uint32_t first = span.begin / kPartitionTokens;
    const uint32_t last = (span.end - 1) / kPartitionTokens;
    for (uint32_t p = first; p <= last; ++p) {
      for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
        const auto found = coverage.find({r, p, h});
        ASSERT_NE(found, coverage.end()) << "row " << r << " partition " << p;
        EXPECT_EQ(found->second, 1);
        ++expected;
      }
    }
  }
  EXPECT_EQ(coverage.size(), expected);
}

// Tokens that are read, all items together.
uint64_t TokensRead(const WorkSplit& split) {
  uint64_t tokens = 0;
  for (const WorkItem& item : split.items()) {
    tokens += (item.last_partition - item.first_partition) * kPartitionTokens;
  }
  return tokens;
}

TEST(WorkSplitTest, ARowOnOneThreadIsOneItemPerKvHead) {
  Tables tables(1);
  const std::vector<AttentionRow> rows = {{tables.Fill(0, 6144), 6143}};
  WorkSplit split;
  split.Build(Shape(), rows, 1);
  EXPECT_EQ(split.items().size(), 2);
  EXPECT_EQ(split.num_records(), 0);
  ExpectEverythingOnce(split, Shape(), rows);
}

TEST(WorkSplitTest, ARowOnThreadsIsSharedOut) {
  Tables tables(1);
  const std::vector<AttentionRow> rows = {{tables.Fill(0, 6144), 6143}};
  WorkSplit split;
  split.Build(Shape(), rows, 4);
  EXPECT_GE(split.items().size(), 16);
  EXPECT_EQ(split.num_records(), 12 * 6);
  ExpectEverythingOnce(split, Shape(), rows);
}

TEST(WorkSplitTest, AChunkIsCutIntoGroupsThatShareReads) {
  Tables tables(1);
  std::byte* const* blocks = tables.Fill(0, 2048);
  std::vector<AttentionRow> rows;
  for (TokenPos p = 1536; p < 2048; ++p) rows.push_back({blocks, p});
  WorkSplit split;
  split.Build(Shape(), rows, 2);
  EXPECT_LE(split.max_members(), 32);
  EXPECT_GE(split.max_members(), 16);
  EXPECT_LE(TokensRead(split), 512 / 16 * 2 * 2048);
  ExpectEverythingOnce(split, Shape(), rows);
  EXPECT_TRUE(std::is_sorted(
      split.items().begin(), split.items().end(),
      [](const WorkItem& a, const WorkItem& b) { return a.cost > b.cost; }));
}

TEST(WorkSplitTest, SequencesReadACommonPrefixOnce) {
  Tables tables(8);
  std::vector<AttentionRow> rows;
  for (uint32_t s = 0; s < 8; ++s) {
    // 4096 tokens in common, then 64 or more of their own.
    const TokenPos tokens = 4160 + 100 * s;
    rows.push_back({tables.Fill(s, tokens, 0, s == 0 ? 0 : 4096), tokens - 1});
  }
  WorkSplit split;
  for (uint32_t threads : {1, 2}) {
    split.Build(Shape(), rows, threads);
    ExpectEverythingOnce(split, Shape(), rows);
    // The prefix once; a last partition, for some two, each; per KV head.
    EXPECT_LE(TokensRead(split), 2 * (4096 + 8 * 1024));
    EXPECT_EQ(split.max_members(), 8);
  }
}

TEST(WorkSplitTest, PrefixesOfAPartOfTheRowsAreFound) {
  Tables tables(4);
  std::vector<AttentionRow> rows;
  rows.push_back({tables.Fill(0, 2048), 2047});
  rows.push_back({tables.Fill(1, 2048), 2047});
  rows.push_back({tables.Fill(2, 2048, 0, 1024), 2047});
  rows.push_back({tables.Fill(3, 2048, 1, 1536), 2040});
  WorkSplit split;
  split.Build(Shape(), rows, 1);
  ExpectEverythingOnce(split, Shape(), rows);
  EXPECT_EQ(TokensRead(split), 2 * (4 * 2048 - 1024 - 1536));
}

TEST(WorkSplitTest, WindowsShareOnlyWhatAllSeeWhole) {
  Tables tables(2);
  const AttentionShape shape = Shape(1024);
  std::vector<AttentionRow> rows;
  rows.push_back({tables.Fill(0, 4096), 2047});
  rows.push_back({tables.Fill(1, 4096, 0, 4096), 2300});
  WorkSplit split;
  split.Build(shape, rows, 1);
  ExpectEverythingOnce(split, shape, rows);
  for (const WorkGroup& group : split.groups()) {
    if (group.num_members == 1) continue;
    EXPECT_EQ(group.first_partition, 3);
    EXPECT_EQ(group.last_partition, 4);
  }
}

TEST(WorkSplitTest, AnythingIsCoveredOnce) {
  std::mt19937 random(1);
  WorkSplit split;
  for (int round = 0; round < 200; ++round) {
    const AttentionShape shape = Shape(random() % 3 == 0 ? random() % 1500 : 0);
    Tables tables(6);
    std::vector<AttentionRow> rows;
    for (uint32_t s = 0; s < 1 + random() % 6; ++s) {
      const TokenPos tokens = 1 + random() % 3000;
      const TokenPos shared = s == 0 ? 0 : random() % 3000;
      std::byte* const* blocks =
          tables.Fill(s, 3000, random() % std::max(1u, s), shared);
      const TokenPos count =
          random() % 2 == 0 ? 1 : 1 + random() % std::min<TokenPos>(tokens, 90);
      for (TokenPos p = tokens - count; p < tokens; ++p) {
        rows.push_back({blocks, p});
      }
    }
    if (random() % 4 == 0) std::shuffle(rows.begin(), rows.end(), random);
    split.Build(shape, rows, 1 + random() % 5);
    ExpectEverythingOnce(split, shape, rows);
  }
}

}  // namespace
}  // namespace everwarm::kernels
