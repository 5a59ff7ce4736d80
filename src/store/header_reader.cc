#include "store/header_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "store/aligned_buffer.h"
#include "store/directory_layout.h"

namespace everwarm::store {
namespace {

// Small enough to hold few descriptors, large enough to keep a disk busy.
constexpr size_t kBatch = 64;

absl::StatusOr<BlockHeader> Decode(const std::string& path,
                                   const FileInfo& info, ConstBytes page) {
  absl::StatusOr<BlockHeader> header = DecodeHeader(page);
  if (!header.ok()) {
    return absl::IsFailedPrecondition(header.status())
               ? absl::UnimplementedError(header.status().message())
               : header;
  }
  if (info.size != header->file_bytes()) {
    return absl::DataLossError(absl::StrCat(
        "file has ", info.size, " bytes instead of ", header->file_bytes()));
  }
  if (NameOf(path) != BlockFileName(header->identity.key)) {
    return absl::DataLossError("file has another block's name");
  }
  return header;
}

}  // namespace

void ReadHeaders(Env& env, const std::vector<std::string>& paths,
                 HeaderFound found) {
  struct Slot {
    size_t index = 0;
    std::unique_ptr<File> file;
    FileInfo info;
    std::array<MutableBytes, 1> page;
  };
  const AlignedBuffer pages(std::min(kBatch, paths.size()) * kHeaderBytes);
  for (size_t begin = 0; begin < paths.size(); begin += kBatch) {
    const size_t end = std::min(begin + kBatch, paths.size());
    std::vector<Slot> slots;
    slots.reserve(end - begin);
    for (size_t i = begin; i < end; ++i) {
      absl::StatusOr<std::unique_ptr<File>> file =
          env.OpenForRead(paths[i], {.direct = true});
      if (!file.ok()) {
        found(i, FileInfo{}, file.status());
        continue;
      }
      absl::StatusOr<FileInfo> info = (*file)->Stat();
      if (!info.ok()) {
        found(i, FileInfo{}, info.status());
        continue;
      }
      std::byte* page = pages.data() + slots.size() * kHeaderBytes;
      slots.push_back(
          {i, *std::move(file), *info, {MutableBytes(page, kHeaderBytes)}});
    }
    std::vector<ReadJob> jobs;
    jobs.reserve(slots.size());
    for (const Slot& slot : slots) {
      jobs.push_back({slot.file.get(), 0, slot.page});
    }
    env.ReadMany(jobs, [&](size_t i, absl::StatusOr<size_t> bytes) {
      const Slot& slot = slots[i];
      if (!bytes.ok()) {
        found(slot.index, slot.info, bytes.status());
        return;
      }
      found(slot.index, slot.info,
            Decode(paths[slot.index], slot.info, slot.page[0].first(*bytes)));
    });
  }
}

}  // namespace everwarm::store
