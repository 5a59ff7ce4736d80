#include "cache/token_tree.h"

#include <algorithm>
#include <map>

#include "gtest/gtest.h"

namespace everwarm::cache {
namespace {

using Tokens = std::vector<TokenId>;

class TokenTreeTest : public testing::Test {
 protected:
  static Tokens Full(TokenId first) {
    Tokens tokens(16);
    for (TokenId i = 0; i < 16; ++i) {
      tokens[i] = first + i;
    }
    return tokens;
  }

  TokenTree tree_{16, 2};
  const NodeId root_id_ = RootId(Fingerprint{}, "");
  Node* const root_ = tree_.FindOrAddRoot(root_id_);
};

TEST_F(TokenTreeTest, FindsAChildByExactlyItsTokens) {
  Node* const node = tree_.FindOrAdd(root_, Full(1));
  EXPECT_EQ(tree_.Find(root_, Full(1)), node);
  EXPECT_EQ(tree_.Find(root_, Full(2)), nullptr);
  EXPECT_EQ(tree_.Find(node, Full(1)), nullptr);
  EXPECT_EQ(tree_.FindOrAdd(root_, Full(1)), node);
  EXPECT_EQ(tree_.num_nodes(), 1);
}

TEST_F(TokenTreeTest, ATailGrowsToTheLongerSpan) {
  Node* const tail = tree_.FindOrAdd(root_, Tokens{1, 2, 3});
  tree_.Key(tail, 0, 3);
  Node* const longer = tree_.FindOrAdd(root_, Tokens{1, 2, 3, 4});
  EXPECT_EQ(longer, tail);
  EXPECT_EQ(tail->tokens, (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(tree_.num_nodes(), 1);
  EXPECT_EQ(tree_.Find(root_, Tokens{1, 2, 3}), nullptr);
  EXPECT_EQ(tree_.Find(root_, Tokens{1, 2, 3, 4}), tail);
  EXPECT_EQ(tree_.Key(tail, 0, 4).node, ChildId(root_id_, Tokens{1, 2, 3, 4}));
  EXPECT_EQ(tree_.Key(tail, 1, 3).node, ChildId(root_id_, Tokens{1, 2, 3}));
}

TEST_F(TokenTreeTest, AShorterSpanIsFoundInALongerOne) {
  Node* const node = tree_.FindOrAdd(root_, Tokens{1, 2, 3, 4});
  EXPECT_EQ(tree_.FindOrAdd(root_, Tokens{1, 2}), node);
  EXPECT_EQ(node->tokens.size(), 4);
}

TEST_F(TokenTreeTest, SpansThatDivergeAreSiblings) {
  Node* const a = tree_.FindOrAdd(root_, Tokens{1, 2, 3});
  Node* const b = tree_.FindOrAdd(root_, Tokens{1, 2, 4});
  Node* const c = tree_.FindOrAdd(root_, Tokens{1, 2, 3, 9});
  EXPECT_NE(a, b);
  EXPECT_EQ(a, c);
  EXPECT_EQ(tree_.Children(root_).size(), 2);
}

TEST_F(TokenTreeTest, NeighboursShareTheirFirstTokens) {
  tree_.FindOrAdd(root_, Tokens{1, 2, 3, 4});
  Node* const best = tree_.FindOrAdd(root_, Tokens{1, 2, 5, 6, 7});
  tree_.FindOrAdd(root_, Tokens{1, 2, 9});
  tree_.FindOrAdd(root_, Tokens{2, 2, 5, 6, 7});
  const auto common = [&](const Tokens& span) {
    std::map<uint32_t, Node*> found;
    for (const auto& neighbour : tree_.Neighbours(root_, span)) {
      found[neighbour.common] = neighbour.node;
    }
    return found;
  };
  EXPECT_EQ(common({1, 2, 5, 6, 8}).rbegin()->first, 4);
  EXPECT_EQ(common({1, 2, 5, 6, 8}).rbegin()->second, best);
  EXPECT_EQ(common({1, 2, 5, 6, 7}).rbegin()->first, 5);
  EXPECT_EQ(tree_.Neighbours(root_, Tokens{1, 2, 6}).size(), 3);
  EXPECT_TRUE(tree_.Neighbours(root_, Tokens{3}).empty());
}

TEST_F(TokenTreeTest, TheNearestNeighboursAreAmongThoseReturned) {
  for (TokenId i = 0; i < 200; ++i) {
    tree_.FindOrAdd(root_, Tokens{1, i, 5, 6});
  }
  uint32_t most = 0;
  for (const auto& neighbour : tree_.Neighbours(root_, Tokens{1, 77, 5, 9})) {
    most = std::max(most, neighbour.common);
  }
  EXPECT_EQ(most, 3);
}

TEST_F(TokenTreeTest, NeighboursStayUnderTheirParent) {
  Node* const parent = tree_.FindOrAdd(root_, Full(1));
  tree_.FindOrAdd(parent, Tokens{5, 6});
  EXPECT_TRUE(tree_.Neighbours(root_, Tokens{5, 6}).empty());
  EXPECT_EQ(tree_.Neighbours(parent, Tokens{5, 7}).size(), 1);
}

TEST_F(TokenTreeTest, PruningTakesEmptyAncestorsToo) {
  Node* const parent = tree_.FindOrAdd(root_, Full(1));
  Node* const child = tree_.FindOrAdd(parent, Full(20));
  parent->groups[0].tier_tokens = 16;
  tree_.Prune(child);
  EXPECT_EQ(tree_.num_nodes(), 1);
  parent->groups[0].tier_tokens = 0;
  tree_.Prune(parent);
  EXPECT_EQ(tree_.num_nodes(), 0);
  EXPECT_EQ(tree_.FindRoot(root_id_), nullptr);
}

TEST_F(TokenTreeTest, APinnedNodeStays) {
  Node* const node = tree_.FindOrAdd(root_, Full(1));
  tree_.Pin(node);
  tree_.Prune(node);
  EXPECT_EQ(tree_.num_nodes(), 1);
  tree_.Unpin(node);
  EXPECT_EQ(tree_.num_nodes(), 0);
}

TEST_F(TokenTreeTest, IdentitiesChainFromTheRoot) {
  Node* const parent = tree_.FindOrAdd(root_, Full(1));
  Node* const child = tree_.FindOrAdd(parent, Tokens{7, 8});
  const BlockIdentity identity = tree_.Identity(child, 1, 2);
  EXPECT_EQ(identity.root, root_id_);
  EXPECT_EQ(identity.parent, ChildId(root_id_, Full(1)));
  EXPECT_EQ(identity.key.node, ChildId(identity.parent, Tokens{7, 8}));
  EXPECT_EQ(identity.key.group, 1);
  EXPECT_EQ(identity.start, 16);
  EXPECT_EQ(identity.tokens, (Tokens{7, 8}));
}

}  // namespace
}  // namespace everwarm::cache
