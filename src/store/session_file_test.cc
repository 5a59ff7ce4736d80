#include "store/session_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "testing/source_files.h"
#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

using Bytes = std::vector<std::byte>;

SessionFile Example(size_t nodes = 3) {
  SessionFile file;
  file.fingerprint = TestFingerprint(0x11);
  file.record.session = cache::SessionIdOf("agent 7");
  file.record.root = RootId(file.fingerprint, "");
  NodeId id = file.record.root;
  for (size_t i = 0; i < nodes; ++i) {
    id = ChildId(id, std::vector<TokenId>(16, static_cast<TokenId>(i)));
    file.record.path.push_back(id);
  }
  return file;
}

Bytes Encode(const SessionFile& file) {
  const AlignedBuffer buffer = EncodeSession(file);
  return {buffer.data(), buffer.data() + buffer.size()};
}

void ExpectSame(const SessionFile& a, const SessionFile& b) {
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.record.session, b.record.session);
  EXPECT_EQ(a.record.root, b.record.root);
  EXPECT_EQ(a.record.path, b.record.path);
  EXPECT_EQ(a.record.closed, b.record.closed);
}

TEST(SessionFileTest, WhatIsWrittenIsRead) {
  // Around what fits into one page, and much more.
  for (const size_t nodes : {1u, 123u, 124u, 5000u}) {
    for (const bool closed : {false, true}) {
      SessionFile file = Example(nodes);
      file.record.closed = closed;
      const Bytes bytes = Encode(file);
      EXPECT_EQ(bytes.size(), SessionFileBytes(nodes));
      const auto read = DecodeSession(bytes);
      ASSERT_TRUE(read.ok()) << read.status();
      ExpectSame(*read, file);
    }
  }
  EXPECT_EQ(SessionFileBytes(123), 4096u);
  EXPECT_EQ(SessionFileBytes(124), 8192u);
}

TEST(SessionFileTest, NothingOfTheNameIsInTheFile) {
  const Bytes bytes = Encode(Example());
  const std::string text(reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
  EXPECT_EQ(text.find("agent"), std::string::npos);
}

TEST(SessionFileTest, EveryFlippedBitIsSeen) {
  const Bytes good = Encode(Example());
  for (size_t at = 0; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] ^= std::byte{1} << (at % 8);
    EXPECT_TRUE(absl::IsDataLoss(DecodeSession(bad).status())) << at;
  }
}

TEST(SessionFileTest, ACutAtEveryByteIsSeen) {
  const Bytes good = Encode(Example(124));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(
        DecodeSession(absl::MakeConstSpan(good).first(size)).status()))
        << size;
  }
}

TEST(SessionFileTest, RecordsThatLieUnderARightChecksumAreRefused) {
  const auto with = [](size_t at, uint8_t value) {
    Bytes bytes = Encode(Example());
    bytes[at] = std::byte{value};
    SealSession(absl::MakeSpan(bytes));
    return DecodeSession(bytes).status();
  };
  EXPECT_TRUE(absl::IsUnimplemented(with(8, 2)));    // version
  EXPECT_TRUE(absl::IsDataLoss(with(12, 2)));        // flags
  EXPECT_TRUE(absl::IsDataLoss(with(16, 0)));        // no nodes
  EXPECT_TRUE(absl::IsDataLoss(with(16, 255)));      // more than there are
  EXPECT_TRUE(absl::IsDataLoss(with(23, 255)));      // more than can be
  EXPECT_TRUE(absl::IsDataLoss(with(24, 1)));        // not used
  EXPECT_TRUE(absl::IsDataLoss(with(128 + 96, 1)));  // behind the path
}

TEST(SessionFileTest, OnlyItsOwnNameIsAName) {
  const cache::RecordId id = Example().record.id();
  const std::string name = SessionFileName(id);
  EXPECT_EQ(ParseSessionFileName(name), id);
  std::string capitals = name;
  capitals[0] = 'A';
  for (const std::string& other :
       {std::string(), std::string(".session"), name + "x", "x" + name,
        name.substr(1), capitals, name.substr(0, 64) + ".0.kv"}) {
    EXPECT_FALSE(ParseSessionFileName(other).has_value()) << other;
  }
  EXPECT_FALSE(ParseBlockFileName(name).has_value());
}

TEST(SessionFileTest, ClosedAndOpenRecordsHaveDifferentNames) {
  SessionFile file = Example();
  const cache::RecordId open = file.record.id();
  file.record.closed = true;
  EXPECT_NE(file.record.id(), open);
}

TEST(SessionFileTest, TheGoldenFileOfVersion1KeepsDecoding) {
  const std::string path = SourceFile("tests/data/session_v1.session");
  const Bytes wanted = Encode(Example());
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
  const auto read = DecodeSession({bytes, text.size()});
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSame(*read, Example());
  EXPECT_EQ(Bytes(bytes, bytes + text.size()), wanted);
}

}  // namespace
}  // namespace everwarm::store
