#include "store/block_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "testing/source_files.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using Page = std::vector<std::byte>;

// The block of the golden file and of the worked example in docs/format.md: a
// tail of three tokens after one full span.
BlockHeader ExampleHeader() {
  BlockHeader header;
  header.fingerprint = TestFingerprint(0x11);
  header.scheme = {"f16", BlockGeometry(2, 16, {{2, 64}, {2, 96}})};
  const auto chain = Chain(1, 19, header.fingerprint);
  header.identity = chain[1];
  header.identity.key.group = 3;
  return header;
}

std::vector<std::byte> PayloadOf(const BlockHeader& header) {
  std::vector<std::byte> payload(header.padded_payload_bytes());
  for (size_t i = 0; i < header.payload_bytes(); ++i) {
    payload[i] = static_cast<std::byte>(i % 251);
  }
  return payload;
}

Page ExamplePage() {
  BlockHeader header = ExampleHeader();
  const std::vector<std::byte> payload = PayloadOf(header);
  header.checksum = ChecksumPayload({payload.data(), header.payload_bytes()});
  Page page(kHeaderBytes);
  EXPECT_TRUE(EncodeHeader(header, page.data()).ok());
  return page;
}

// The state of the golden file of version 2: behind the first two tokens of the
// example's tail.
BlockHeader ExampleState() {
  BlockHeader header;
  header.fingerprint = TestFingerprint(0x11);
  header.scheme = {"state", BlockGeometry(2, 1, {{1, 96}, {1, 864}})};
  header.identity = StateIn(Chain(1, 19, header.fingerprint)[1], 2);
  return header;
}

void ExpectSame(const BlockHeader& a, const BlockHeader& b) {
  EXPECT_TRUE(CheckIdentity(a, b.fingerprint, b.scheme, b.identity).ok());
}

TEST(BlockFileTest, DecodingGivesBackWhatWasEncoded) {
  const absl::StatusOr<BlockHeader> decoded = DecodeHeader(ExamplePage());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, ExampleHeader());
  EXPECT_EQ(decoded->payload_bytes(), 3u * 640);
  EXPECT_EQ(decoded->file_bytes(), 8192u);
  EXPECT_FALSE(decoded->full());
}

TEST(BlockFileTest, AStateIsAFileOfItsOwnVersion) {
  const BlockHeader state = ExampleState();
  EXPECT_EQ(state.payload_bytes(), 2u * 960);
  EXPECT_TRUE(state.full());
  Page page(kHeaderBytes);
  ASSERT_TRUE(EncodeHeader(state, page.data()).ok());
  const absl::StatusOr<BlockHeader> decoded = DecodeHeader(page);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, state);
  EXPECT_EQ(decoded->payload_bytes(), 2u * 960);
  // Neither is what the other version says.
  for (Page lie : {page, ExamplePage()}) {
    lie[8] = lie[8] == std::byte{1} ? std::byte{2} : std::byte{1};
    SealHeader(lie.data());
    EXPECT_TRUE(absl::IsDataLoss(DecodeHeader(lie).status()));
  }
  Page later = page;
  later[8] = std::byte{3};
  SealHeader(later.data());
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeHeader(later).status()));
}

TEST(BlockFileTest, TheLargestHeaderFits) {
  BlockHeader header;
  header.fingerprint = TestFingerprint(2);
  header.scheme.codec = std::string(kMaxCodecBytes, 'x');
  header.scheme.geometry = BlockGeometry(
      1, 256, std::vector<PlaneGeometry>(kMaxPlanes, PlaneGeometry{1, 8}));
  header.identity.root = RootId(header.fingerprint, "n");
  header.identity.parent = header.identity.root;
  for (TokenId i = 0; i < 256; ++i) {
    header.identity.tokens.push_back(INT32_MAX - i);
  }
  header.identity.key = {
      ChildId(header.identity.parent, header.identity.tokens), UINT16_MAX};
  Page page(kHeaderBytes);
  ASSERT_TRUE(EncodeHeader(header, page.data()).ok());
  const absl::StatusOr<BlockHeader> decoded = DecodeHeader(page);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, header);
  EXPECT_TRUE(decoded->full());
}

TEST(BlockFileTest, AHeaderCutAnywhereIsDamaged) {
  const Page page = ExamplePage();
  for (size_t size = 0; size < page.size(); ++size) {
    // Its own allocation, so that a sanitizer sees any read beyond.
    const Page cut(page.begin(), page.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_TRUE(absl::IsDataLoss(DecodeHeader(cut).status())) << size;
  }
}

TEST(BlockFileTest, EveryFlippedBitOfAHeaderIsDamage) {
  Page page = ExamplePage();
  for (size_t at = 0; at < page.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      page[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_TRUE(absl::IsDataLoss(DecodeHeader(page).status())) << at;
      page[at] ^= static_cast<std::byte>(1 << bit);
    }
  }
  EXPECT_TRUE(DecodeHeader(page).ok());
}

// A header that is changed and given a right checksum again, as somebody who
// means harm would.
absl::Status DecodeWith(size_t at, std::vector<uint8_t> bytes) {
  Page page = ExamplePage();
  for (size_t i = 0; i < bytes.size(); ++i) {
    page[at + i] = static_cast<std::byte>(bytes[i]);
  }
  SealHeader(page.data());
  return DecodeHeader(page).status();
}

TEST(BlockFileTest, LiesUnderARightChecksumAreRefused) {
  struct Lie {
    const char* what;
    size_t at;
    std::vector<uint8_t> bytes;
  };
  const std::vector<Lie> lies = {
      {"magic", 0, {'X'}},
      {"header length", 12, {0, 32, 0, 0}},
      {"no planes", 18, {0, 0}},
      {"too many planes", 18, {17, 0}},
      {"a plane less", 18, {1, 0}},
      {"no layers", 20, {0, 0, 0, 0}},
      {"a payload that wraps", 20, {0xff, 0xff, 0xff, 0xff}},
      {"odd block size", 24, {17, 0, 0, 0}},
      {"block size zero", 24, {0, 0, 0, 0}},
      {"huge block size", 24, {0, 0, 0, 0x80}},
      {"no tokens", 28, {0, 0, 0, 0}},
      {"more tokens than a block", 28, {17, 0, 0, 0}},
      {"more tokens than a page", 28, {0xff, 0xff, 0xff, 0xff}},
      {"start inside a span", 32, {1, 0, 0, 0}},
      {"start zero with a parent", 32, {0, 0, 0, 0}},
      {"reserved bytes", 36, {1}},
      {"payload length", 40, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
      {"another parent", 128, {0}},
      {"another node", 160, {0}},
      {"no codec", 192, {0}},
      {"unprintable codec", 192, {7}},
      {"codec after its end", 200, {'x'}},
      {"a plane without heads", 224, {0, 0, 0, 0}},
      {"a plane that wraps", 224, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
      {"an unused plane", 240, {1}},
      {"bytes before the tokens", 1023, {1}},
      {"a negative token", 1027, {0x80}},
      {"another token", 1024, {0}},
      {"bytes behind the tokens", 1024 + 3 * 4, {1}},
  };
  for (const Lie& lie : lies) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeWith(lie.at, lie.bytes))) << lie.what;
  }
}

TEST(BlockFileTest, AnIntactHeaderOfAnotherVersionIsForeignNotDamaged) {
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeWith(8, {3, 0, 0, 0})));
}

TEST(BlockFileTest, RandomPagesUnderARightChecksumNeverCrash) {
  std::mt19937 random(3);
  const Page good = ExamplePage();
  for (int round = 0; round < 20000; ++round) {
    Page page = good;
    const int changes = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < changes; ++i) {
      page[8 + random() % 300] = static_cast<std::byte>(random());
    }
    SealHeader(page.data());
    const absl::StatusOr<BlockHeader> header = DecodeHeader(page);
    if (header.ok()) {
      EXPECT_LE(header->payload_bytes(), kMaxPayloadBytes);
    }
  }
}

TEST(BlockFileTest, WhatCannotBeDecodedIsNotEncoded) {
  Page page(kHeaderBytes);
  const auto refuses = [&](const std::function<void(BlockHeader&)>& change) {
    BlockHeader header = ExampleHeader();
    change(header);
    return absl::IsInvalidArgument(EncodeHeader(header, page.data()));
  };
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.identity.tokens.clear(); }));
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.identity.tokens[0] = -1; }));
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.identity.tokens[0] += 1; }));
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.identity.start = 17; }));
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.scheme.codec = ""; }));
  EXPECT_TRUE(refuses([](BlockHeader& h) { h.scheme.codec = "a b"; }));
  EXPECT_TRUE(
      refuses([](BlockHeader& h) { h.identity.key.node.digest[0] ^= 1; }));
  EXPECT_FALSE(refuses([](BlockHeader&) {}));
}

TEST(BlockFileTest, EveryDifferenceFromWhatIsWantedIsSeen) {
  const BlockHeader header = ExampleHeader();
  const auto differs = [&](const std::function<void(BlockHeader&)>& change) {
    BlockHeader other = header;
    change(other);
    return absl::IsDataLoss(
        CheckIdentity(header, other.fingerprint, other.scheme, other.identity));
  };
  EXPECT_FALSE(differs([](BlockHeader&) {}));
  EXPECT_TRUE(differs([](BlockHeader& h) { h.fingerprint.digest[31] ^= 1; }));
  EXPECT_TRUE(differs([](BlockHeader& h) { h.scheme.codec = "f17"; }));
  EXPECT_TRUE(differs([](BlockHeader& h) {
    h.scheme.geometry = BlockGeometry(2, 16, {{2, 64}, {2, 97}});
  }));
  EXPECT_TRUE(differs([](BlockHeader& h) { h.identity.key.group = 2; }));
  EXPECT_TRUE(differs([](BlockHeader& h) { h.identity.tokens.pop_back(); }));
  EXPECT_TRUE(differs([](BlockHeader& h) { h.identity.tokens[2] ^= 1; }));
}

// A golden file keeps decoding, and writing it today gives the same bytes.
void CheckGolden(const std::string& name, BlockHeader example) {
  const std::string path = SourceFile("tests/data/" + name);
  const std::vector<std::byte> payload = PayloadOf(example);
  example.checksum = ChecksumPayload({payload.data(), example.payload_bytes()});
  Page wanted(kHeaderBytes);
  ASSERT_TRUE(EncodeHeader(example, wanted.data()).ok());
  wanted.insert(wanted.end(), payload.begin(), payload.end());
  // EVERWARM_WRITE_GOLDEN=1 makes the file of a new version.
  if (std::getenv("EVERWARM_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(wanted.data()),
               static_cast<std::streamsize>(wanted.size()));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  const absl::StatusOr<BlockHeader> header = DecodeHeader({bytes, text.size()});
  ASSERT_TRUE(header.ok()) << header.status();
  ExpectSame(*header, example);
  ASSERT_EQ(text.size(), header->file_bytes());
  EXPECT_EQ(ChecksumPayload({bytes + kHeaderBytes, header->payload_bytes()}),
            header->checksum);
  EXPECT_EQ(Page(bytes, bytes + text.size()), wanted);
}

TEST(BlockFileTest, TheGoldenFileOfVersion1KeepsDecoding) {
  CheckGolden("block_v1.kv", ExampleHeader());
}

TEST(BlockFileTest, TheGoldenFileOfVersion2KeepsDecoding) {
  CheckGolden("state_v2.kv", ExampleState());
}

TEST(BlockFileTest, FileNamesComeBackAsKeysAndNothingElseDoes) {
  const BlockKey key{ExampleHeader().identity.key.node, 12};
  const std::string name = BlockFileName(key);
  EXPECT_EQ(ParseBlockFileName(name), key);
  for (const std::string& bad :
       {std::string(), std::string("lock"), name + "x", "x" + name,
        name.substr(1), key.node.hex() + ".kv", key.node.hex() + ".01.kv",
        key.node.hex() + ".70000.kv", key.node.hex() + ".-1.kv",
        key.node.hex() + ".+1.kv", key.node.hex() + ". 1.kv",
        key.node.hex() + ".1.KV", key.node.hex(), key.node.hex() + ".",
        std::string(64, 'G') + ".0.kv", std::string(64, 'A') + ".0.kv"}) {
    EXPECT_FALSE(ParseBlockFileName(bad).has_value()) << bad;
  }
}

TEST(BlockFileTest, UnpackingInPlaceIsUnpackingElsewhere) {
  for (const BlockGeometry& geometry :
       {BlockGeometry(2, 16, {{2, 64}, {2, 96}}),
        BlockGeometry(3, 32, {{1, 7}, {4, 1}, {2, 33}})}) {
    for (uint32_t tokens = 1; tokens <= geometry.block_tokens(); ++tokens) {
      std::vector<std::byte> packed(geometry.PayloadBytes(tokens));
      for (size_t i = 0; i < packed.size(); ++i) {
        packed[i] = static_cast<std::byte>(i * 7 % 253);
      }
      std::vector<std::byte> slot(geometry.slot_bytes());
      std::copy(packed.begin(), packed.end(), slot.begin());
      UnpackInPlace(geometry, tokens, slot.data());
      std::vector<std::byte> again(packed.size());
      geometry.Pack(slot.data(), tokens, again.data());
      ASSERT_EQ(again, packed) << tokens;
    }
  }
}

}  // namespace
}  // namespace everwarm::store
