// The header of a block file, and a session's record, from any bytes: no crash,
// and whatever is accepted is exactly what writing it again gives.
#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "fuzz/fuzz.h"
#include "store/block_file.h"
#include "store/session_file.h"

using everwarm::fuzz::Require;
using everwarm::store::BlockHeader;
using everwarm::store::kHeaderBytes;

namespace {

void CheckAccepted(const BlockHeader& header,
                   const std::vector<std::byte>& page) {
  std::vector<std::byte> again(kHeaderBytes);
  Require(everwarm::store::EncodeHeader(header, again.data()).ok(),
          "what was read cannot be written");
  Require(again == page, "what was read is written differently");
  Require(header.payload_bytes() <= everwarm::store::kMaxPayloadBytes,
          "a payload beyond the limit");
  Require(everwarm::store::ParseBlockFileName(everwarm::store::BlockFileName(
              header.identity.key)) == header.identity.key,
          "a name that does not lead back");
  // A tail is spread over its slot without a look beyond it.
  const auto& geometry = header.scheme.geometry;
  if (!header.full() && geometry.slot_bytes() <= 1 << 20) {
    std::vector<std::byte> slot(geometry.slot_bytes());
    everwarm::store::UnpackInPlace(geometry, header.num_tokens(), slot.data());
  }
}

// A session's record of that many bytes, and the same with a right checksum.
void TrySession(absl::Span<const std::byte> bytes) {
  everwarm::store::DecodeSession(bytes).IgnoreError();
  std::vector<std::byte> pages((bytes.size() / kHeaderBytes + 1) *
                               kHeaderBytes);
  std::copy(bytes.begin(), bytes.end(), pages.begin());
  everwarm::store::SealSession(absl::MakeSpan(pages));
  if (const auto file = everwarm::store::DecodeSession(pages); file.ok()) {
    const auto again = everwarm::store::EncodeSession(*file);
    Require(std::equal(pages.begin(), pages.end(), again.data(),
                       again.data() + again.size()),
            "a session's record is written differently");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data), size);
  everwarm::store::DecodeHeader(bytes).IgnoreError();
  // With the right checksum everything behind it is reached.
  std::vector<std::byte> page(kHeaderBytes);
  std::copy_n(bytes.begin(), std::min(size, kHeaderBytes), page.begin());
  everwarm::store::SealHeader(page.data());
  if (const auto header = everwarm::store::DecodeHeader(page); header.ok()) {
    CheckAccepted(*header, page);
  }
  TrySession(bytes);
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  if (const auto key = everwarm::store::ParseBlockFileName(name)) {
    Require(everwarm::store::BlockFileName(*key) == name,
            "a name that has two forms");
  }
  if (const auto id = everwarm::store::ParseSessionFileName(name)) {
    Require(everwarm::store::SessionFileName(*id) == name,
            "a session's name that has two forms");
  }
  return 0;
}
