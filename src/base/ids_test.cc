#include "base/ids.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/sha256.h"

namespace everwarm {
namespace {

TEST(Sha256Test, MatchesThePublishedVectorForAbc) {
  Sha256 hash;
  hash.Update("a");
  hash.Update("bc");
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(ToHex(hash.Finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(IdsTest, HexGoesThereAndBack) {
  const NodeId id = ChildId(RootId(Fingerprint{}, "salt"), {1, 2, 3});
  EXPECT_EQ(DigestFromHex(id.hex()), id.digest);
  EXPECT_FALSE(DigestFromHex("12").has_value());
  EXPECT_FALSE(DigestFromHex(std::string(64, 'g')).has_value());
  EXPECT_FALSE(DigestFromHex(std::string(64, 'A')).has_value());
}

TEST(IdsTest, RootsDifferByFingerprintAndNamespace) {
  Fingerprint other;
  other.digest[31] = 1;
  EXPECT_NE(RootId(Fingerprint{}, ""), RootId(other, ""));
  EXPECT_NE(RootId(Fingerprint{}, ""), RootId(Fingerprint{}, "a"));
}

TEST(IdsTest, ChildrenDifferByParentTokensAndLength) {
  const NodeId root = RootId(Fingerprint{}, "");
  const NodeId child = ChildId(root, {1, 2});
  EXPECT_NE(child, ChildId(root, {1, 3}));
  EXPECT_NE(child, ChildId(root, {1, 2, 0}));
  EXPECT_NE(child, ChildId(child, {1, 2}));
  EXPECT_EQ(child, ChildId(root, {1, 2}));
}

}  // namespace
}  // namespace everwarm
