#include "store/block_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace everwarm::store {
namespace {

NodeId Node(uint8_t number) {
  NodeId id;
  id.digest.fill(number);
  return id;
}

Clock::Wall At(int seconds) {
  return Clock::Wall(std::chrono::seconds(seconds));
}

IndexEntry Entry(uint8_t node, uint8_t parent, int used, uint64_t bytes = 10,
                 GroupIndex group = 0, DirIndex dir = kOwnDir) {
  return {.id = {dir, {Node(node), group}},
          .parent = Node(parent),
          .last_used = At(used),
          .bytes = bytes};
}

FileId Id(uint8_t node, GroupIndex group = 0, DirIndex dir = kOwnDir) {
  return {dir, {Node(node), group}};
}

// Nodes in the order in which they go.
std::vector<int> Order(BlockIndex& index) {
  std::vector<int> order;
  while (const auto leaf = index.OldestLeaf({})) {
    order.push_back(leaf->id.key.node.digest[0]);
    index.Remove(leaf->id);
    index.Settle(leaf->bytes);
  }
  return order;
}

TEST(BlockIndexTest, LeavesGoBeforeTheirAncestorsWhateverTheirAge) {
  BlockIndex index;
  index.Add(Entry(1, 0, 1));
  index.Add(Entry(2, 1, 5));
  index.Add(Entry(3, 1, 3));
  index.Add(Entry(4, 2, 9));
  index.Add(Entry(5, 0, 4));
  EXPECT_EQ(Order(index), (std::vector<int>{3, 5, 4, 2, 1}));
  EXPECT_EQ(index.bytes(), 0u);
}

TEST(BlockIndexTest, AStateGoesByItsAgeAloneAndKeepsItsParents) {
  BlockIndex index;
  index.Add(Entry(1, 0, 5));
  index.Add(Entry(2, 1, 6));
  index.Add(Entry(3, 2, 7));
  // Of the same span as node 2's block, which has children.
  IndexEntry interior = Entry(2, 1, 1, 10, 1);
  interior.is_state = true;
  index.Add(interior);
  // In the middle of the last span; nothing but its parents holds it.
  IndexEntry last = Entry(9, 2, 8, 10, 1);
  last.is_state = true;
  index.Add(last);
  EXPECT_EQ(index.OldestLeaf({})->id, Id(2, 1));
  EXPECT_EQ(Order(index), (std::vector<int>{2, 3, 9, 2, 1}));
  EXPECT_EQ(index.bytes(), 0u);
}

TEST(BlockIndexTest, TheOrderOfArrivalDoesNotMatter) {
  BlockIndex index;
  index.Add(Entry(4, 2, 9));
  index.Add(Entry(2, 1, 5));
  index.Add(Entry(1, 0, 1));
  EXPECT_EQ(Order(index), (std::vector<int>{4, 2, 1}));
}

TEST(BlockIndexTest, ANodeStaysWhileAnyGroupOfAChildIsThere) {
  BlockIndex index;
  index.Add(Entry(1, 0, 1, 10, 0));
  index.Add(Entry(1, 0, 1, 10, 1));
  index.Add(Entry(2, 1, 5, 10, 1));
  EXPECT_EQ(index.OldestLeaf({})->id, Id(2, 1));
  index.Remove(Id(2, 1));
  EXPECT_EQ(Order(index), (std::vector<int>{1, 1}));
}

TEST(BlockIndexTest, UseChangesTheOrderAndKeepProtects) {
  BlockIndex index;
  index.Add(Entry(1, 0, 1));
  index.Add(Entry(2, 0, 2));
  index.SetLastUsed(Id(1), At(3));
  EXPECT_EQ(index.OldestLeaf({})->id, Id(2));
  EXPECT_EQ(index.OldestLeaf({Node(2)})->id, Id(1));
  EXPECT_FALSE(index.OldestLeaf({Node(1), Node(2)}).has_value());
}

TEST(BlockIndexTest, BytesAreCountedUntilTheFileIsGone) {
  BlockIndex index;
  index.Add(Entry(1, 0, 1, 100));
  index.AddLoose({"a", 10, At(1)});
  index.Reserve(5);
  index.AddFixed(1);
  EXPECT_EQ(index.bytes(), 116u);
  EXPECT_EQ(index.evictable_bytes(), 110u);
  EXPECT_TRUE(index.Remove(Id(1)));
  EXPECT_FALSE(index.Remove(Id(1)));
  EXPECT_EQ(index.bytes(), 116u);
  EXPECT_EQ(index.evictable_bytes(), 10u);
  index.Settle(100);
  index.Release(5);
  EXPECT_TRUE(index.RemoveLoose("a").has_value());
  index.Settle(10);
  EXPECT_EQ(index.bytes(), 1u);
}

TEST(BlockIndexTest, AReplacedFileCountsOnce) {
  BlockIndex index;
  const uint64_t first = index.Add(Entry(1, 0, 1, 100));
  const uint64_t second = index.Add(Entry(1, 0, 2, 30));
  EXPECT_NE(first, second);
  EXPECT_EQ(index.bytes(), 30u);
  EXPECT_EQ(index.own_blocks(), 1u);
  index.AddLoose({"a", 10, At(1)});
  index.AddLoose({"a", 20, At(2)});
  EXPECT_EQ(index.bytes(), 50u);
}

TEST(BlockIndexTest, TheSameNodeInAnotherDirectoryIsAnotherFile) {
  BlockIndex index;
  index.Add(Entry(1, 0, 1));
  index.Add(Entry(2, 1, 2, 10, 0, 1));
  EXPECT_EQ(index.own_blocks(), 1u);
  EXPECT_EQ(index.OldestLeaf({})->id, Id(1));
  EXPECT_EQ(index.EntriesOf(1).size(), 1u);
}

TEST(BlockIndexTest, RandomOperationsAgreeWithASimpleModel) {
  std::mt19937 random(5);
  BlockIndex index;
  std::map<int, IndexEntry> model;  // by node; group 0
  for (int step = 0; step < 20000; ++step) {
    const auto node = static_cast<uint8_t>(1 + random() % 40);
    switch (random() % 4) {
      case 0:
      case 1: {
        // Parents have smaller numbers: a forest.
        IndexEntry entry =
            Entry(node, static_cast<uint8_t>(random() % node),
                  static_cast<int>(random() % 1000), 1 + random() % 9);
        entry.generation = index.Add(entry);
        model[node] = entry;
        break;
      }
      case 2:
        if (const IndexEntry* entry = index.Find(Id(node))) {
          const uint64_t bytes = entry->bytes;
          ASSERT_TRUE(index.Remove(Id(node)));
          index.Settle(bytes);
        }
        model.erase(node);
        break;
      default:
        index.SetLastUsed(Id(node), At(step % 1000));
        if (model.contains(node)) {
          model[node].last_used = At(step % 1000);
        }
    }
    const IndexEntry* victim = nullptr;
    uint64_t bytes = 0;
    for (const auto& [number, entry] : model) {
      bytes += entry.bytes;
      bool leaf = true;
      for (const auto& [other, child] : model) {
        leaf = leaf && child.parent != entry.id.key.node;
      }
      if (leaf && (victim == nullptr ||
                   std::pair(entry.last_used, entry.generation) <
                       std::pair(victim->last_used, victim->generation))) {
        victim = &entry;
      }
    }
    ASSERT_EQ(index.bytes(), bytes);
    ASSERT_EQ(index.own_blocks(), model.size());
    const auto leaf = index.OldestLeaf({});
    ASSERT_EQ(leaf.has_value(), victim != nullptr);
    if (victim != nullptr) {
      ASSERT_EQ(leaf->id, victim->id);
    }
  }
}

}  // namespace
}  // namespace everwarm::store
