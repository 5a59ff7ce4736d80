// A cache directory full of anything: the scan never crashes, gives only
// entries that can be asked for, keeps the cap, and leaves no temporary file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cache/block_pool.h"
#include "fuzz/fuzz.h"
#include "store/block_store.h"
#include "store/session_file.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"
#include "testing/sim_disk.h"

namespace everwarm::store {
namespace {

using fuzz::Require;

constexpr uint64_t kCap = 60000;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t Byte() { return left_ == 0 ? 0 : (--left_, *data_++); }
  SimDisk::Bytes Take(size_t count) {
    count = std::min(count, left_);
    SimDisk::Bytes bytes(count);
    std::transform(data_, data_ + count, bytes.begin(),
                   [](uint8_t byte) { return std::byte{byte}; });
    data_ += count;
    left_ -= count;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

StoreOptions Options() {
  StoreOptions options;
  options.dir = "/cache";
  options.fingerprint.digest.fill(1);
  options.groups = {GroupScheme{"f16", BlockGeometry(2, 16, {{2, 16}})}};
  options.max_bytes = kCap;
  options.min_free_bytes = 0;
  return options;
}

// A name of each kind that a scan looks at.
std::string PathFor(uint8_t kind, const SimDisk::Bytes& contents,
                    const StoreOptions& options) {
  const std::string own = "/cache/" + options.fingerprint.hex();
  Fingerprint foreign;
  foreign.digest.fill(2);
  BlockKey key;
  key.node.digest.fill(kind);
  const auto header = DecodeHeader(contents);
  const std::string name =
      BlockFileName(header.ok() ? header->identity.key : key);
  switch (kind % 8) {
    case 0:
      return absl::StrCat(own, "/tmp-", kind);
    case 1:
      return absl::StrCat("/cache/", foreign.hex(), "/", name);
    case 2:
      return absl::StrCat("/cache/damaged/", kind);
    case 3:
      return absl::StrCat("/cache/tmp-", kind);
    case 4: {
      const auto session = DecodeSession(contents);
      return absl::StrCat(own, "/",
                          SessionFileName(session.ok() ? session->record.id()
                                                       : key.node.digest));
    }
    default:
      return absl::StrCat(own, "/", name);
  }
}

void FillDirectory(SimDisk& disk, Input& input, const StoreOptions& options) {
  Fingerprint foreign;
  foreign.digest.fill(2);
  for (const std::string& dir :
       {std::string("/cache"), "/cache/" + options.fingerprint.hex(),
        "/cache/" + foreign.hex(), std::string("/cache/damaged")}) {
    disk.Put(dir, {}, FileKind::kDirectory);
  }
  while (!input.empty()) {
    const uint8_t kind = input.Byte();
    const size_t pages = input.Byte() % 4;
    // Mostly a page that passes the checksum, as far as the input goes.
    const SimDisk::Bytes taken = input.Take(input.Byte() % 4 == 0 ? 64 : 1500);
    SimDisk::Bytes contents(std::max(taken.size(), pages * kHeaderBytes));
    std::copy(taken.begin(), taken.end(), contents.begin());
    if (kind >= 64 && contents.size() >= kHeaderBytes) {
      if (kind % 8 == 4) {
        contents.resize(contents.size() / kHeaderBytes * kHeaderBytes);
        SealSession(absl::MakeSpan(contents));
      } else {
        SealHeader(contents.data());
      }
    }
    disk.Put(PathFor(kind, contents, options), contents,
             kind == 255 ? FileKind::kOther : FileKind::kRegular);
  }
}

void ReadAll(OpenedStore& opened, cache::BlockPool& pool,
             ManualExecutor& readers, ManualExecutor& writers) {
  for (const cache::TierEntry& entry : opened.entries) {
    Require(entry.identity.key.group == 0, "an entry of an unknown group");
    opened.store->Load(
        {entry.identity, *pool.Allocate(0, entry.identity.start)});
  }
  readers.RunAll();
  writers.RunAll();
  Require(opened.store->TakeEvents().size() >= opened.entries.size(),
          "a read without an answer");
}

void Run(Input input) {
  static cache::BlockPool pool({Options().groups[0].rest.geometry});
  FakeClock clock;
  SimDisk disk(&clock);
  ManualExecutor writers;
  ManualExecutor readers;
  const StoreOptions options = Options();
  FillDirectory(disk, input, options);
  auto opened = BlockStore::Open(
      options, {&disk, &clock, &writers, &readers, NullLogger()});
  Require(opened.ok(), "a store that does not open");
  Require(disk.used_bytes() <= kCap, "more than the cap");
  Require(opened->store->stats().bytes == disk.used_bytes(),
          "other bytes than are counted");
  for (const std::string& path : disk.Paths()) {
    Require(!absl::StrContains(path, "/tmp-"), "a temporary file is left");
  }
  ReadAll(*opened, pool, readers, writers);
  opened->store.reset();
}

}  // namespace
}  // namespace everwarm::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  everwarm::store::Run({data, size});
  return 0;
}
