#include "store/fingerprint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "store/aligned_buffer.h"
#include "xxhash.h"

namespace everwarm::store {
namespace {

constexpr std::string_view kMemoHeader = "everwarm-weights 1\n";
// Models that one directory serves; beyond it the oldest are forgotten.
constexpr size_t kMostMemos = 64;
constexpr size_t kMostMemoBytes = 64 * 1024;
// One read. Large enough for a disk, small enough for a steady progress.
constexpr size_t kChunkBytes = size_t{8} << 20;

int64_t Nanoseconds(Clock::Wall time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

Clock::Wall FromNanoseconds(int64_t value) {
  return Clock::Wall(std::chrono::duration_cast<Clock::Wall::duration>(
      std::chrono::nanoseconds(value)));
}

bool SameFile(const FileInfo& a, const FileInfo& b) {
  return a.device == b.device && a.inode == b.inode && a.size == b.size &&
         a.modified == b.modified && a.changed == b.changed;
}

void AddNumber(Sha256& hash, uint64_t number) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  }
  hash.Update(bytes.data(), bytes.size());
}

void AddText(Sha256& hash, std::string_view text) {
  AddNumber(hash, text.size());
  hash.Update(text);
}

void AddScheme(Sha256& hash, const GroupScheme& scheme) {
  AddText(hash, scheme.codec);
  AddNumber(hash, scheme.geometry.num_layers());
  AddNumber(hash, scheme.geometry.planes().size());
  for (const PlaneGeometry& plane : scheme.geometry.planes()) {
    AddNumber(hash, plane.heads);
    AddNumber(hash, plane.token_bytes);
  }
}

std::string CheckLine(std::string_view text) {
  return absl::StrFormat("check %016x\n",
                         XXH3_64bits(text.data(), text.size()));
}

}  // namespace

Fingerprint ComputeFingerprint(const FingerprintParts& parts) {
  Sha256 hash;
  AddText(hash, "everwarm-fingerprint-1");
  hash.Update(parts.weights.data(), parts.weights.size());
  const auto blocks = std::find_if(parts.groups.begin(), parts.groups.end(),
                                   [](const BySpan<GroupScheme>& group) {
                                     return !group.rest.geometry.is_state();
                                   });
  AddNumber(hash, blocks == parts.groups.end()
                      ? 0
                      : blocks->rest.geometry.block_tokens());
  AddNumber(hash, parts.groups.size());
  for (const BySpan<GroupScheme>& group : parts.groups) {
    AddScheme(hash, group.rest);
  }
  AddText(hash, parts.numerics_version);
  // Nothing where all groups are as they were before there was this.
  for (size_t g = 0; g < parts.groups.size(); ++g) {
    if (parts.groups[g].first_spans > 0) {
      AddNumber(hash, g);
      AddNumber(hash, parts.groups[g].first_spans);
      AddScheme(hash, parts.groups[g].first);
    }
  }
  return Fingerprint{hash.Finish()};
}

WeightsHasher::WeightsHasher(Env* env, std::string memo_path, Logger logger)
    : env_(*env),
      memo_path_(std::move(memo_path)),
      logger_(std::move(logger)) {}

absl::StatusOr<HashedWeights> WeightsHasher::Hash(
    const std::string& path, const HashProgress& progress) {
  EW_ASSIGN_OR_RETURN(
      const std::unique_ptr<File> file,
      env_.OpenForRead(path, {.direct = true, .follow_links = true}));
  EW_ASSIGN_OR_RETURN(const FileInfo before, file->Stat());
  for (const Known& known : ReadMemo()) {
    if (SameFile(known.info, before)) {
      return HashedWeights{known.digest, before};
    }
  }
  EW_ASSIGN_OR_RETURN(const Digest digest,
                      HashFile(*file, path, before.size, progress));
  EW_ASSIGN_OR_RETURN(const FileInfo after, file->Stat());
  if (!SameFile(before, after)) {
    return absl::UnavailableError(
        absl::StrCat(path, " changed while it was read"));
  }
  Remember(after, digest);
  return HashedWeights{digest, after};
}

absl::StatusOr<Digest> WeightsHasher::HashFile(File& file,
                                               const std::string& path,
                                               uint64_t size,
                                               const HashProgress& progress) {
  Sha256 hash;
  const AlignedBuffer buffer(std::min<uint64_t>(size + 1, kChunkBytes));
  uint64_t done = 0;
  while (done < size) {
    const std::array<MutableBytes, 1> part = {buffer.first(buffer.size())};
    EW_ASSIGN_OR_RETURN(const size_t bytes, file.ReadAt(done, part));
    if (bytes == 0) {
      return absl::UnavailableError(
          absl::StrCat(path, " became shorter while it was read"));
    }
    // Not more than there was at first: a longer file has changed, which the
    // caller notices.
    const uint64_t used = std::min<uint64_t>(bytes, size - done);
    hash.Update(buffer.data(), used);
    done += used;
    if (progress) {
      progress(done, size);
    }
  }
  return hash.Finish();
}

std::string WeightsHasher::ReadMemoText() {
  if (memo_path_.empty()) {
    return {};
  }
  const auto file = env_.OpenForRead(memo_path_, {});
  if (!file.ok()) {
    return {};
  }
  std::string text(kMostMemoBytes, '\0');
  const std::array<MutableBytes, 1> part = {
      MutableBytes(reinterpret_cast<std::byte*>(text.data()), text.size())};
  const absl::StatusOr<size_t> bytes = (*file)->ReadAt(0, part);
  text.resize(bytes.value_or(0));
  const size_t check_bytes = CheckLine("").size();
  const size_t body_bytes =
      text.size() < check_bytes ? 0 : text.size() - check_bytes;
  const std::string check = text.substr(body_bytes);
  text.resize(body_bytes);
  if (check != CheckLine(text) ||
      text.compare(0, kMemoHeader.size(), kMemoHeader) != 0) {
    logger_->warn("{} is damaged and ignored", memo_path_);
    return {};
  }
  return text;
}

std::vector<WeightsHasher::Known> WeightsHasher::ReadMemo() {
  std::vector<Known> memo;
  const std::vector<std::string> lines = absl::StrSplit(ReadMemoText(), '\n');
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (fields.size() != 6) {
      continue;
    }
    Known known;
    int64_t modified = 0;
    int64_t changed = 0;
    const std::optional<Digest> digest = DigestFromHex(fields[0]);
    if (digest.has_value() && absl::SimpleAtoi(fields[1], &known.info.device) &&
        absl::SimpleAtoi(fields[2], &known.info.inode) &&
        absl::SimpleAtoi(fields[3], &known.info.size) &&
        absl::SimpleAtoi(fields[4], &modified) &&
        absl::SimpleAtoi(fields[5], &changed)) {
      known.digest = *digest;
      known.info.modified = FromNanoseconds(modified);
      known.info.changed = FromNanoseconds(changed);
      memo.push_back(known);
    }
  }
  return memo;
}

void WeightsHasher::Remember(const FileInfo& info, const Digest& digest) {
  if (memo_path_.empty()) {
    return;
  }
  std::vector<Known> memo = ReadMemo();
  // One line for each file: what it was before does not come back.
  std::erase_if(memo, [&](const Known& known) {
    return known.info.device == info.device && known.info.inode == info.inode;
  });
  memo.push_back({digest, info});
  if (memo.size() > kMostMemos) {
    memo.erase(memo.begin());
  }
  if (const absl::Status status = WriteMemo(memo); !status.ok()) {
    logger_->warn("{} not written: {}", memo_path_, status.ToString());
  }
}

absl::Status WeightsHasher::WriteMemo(const std::vector<Known>& memo) {
  std::string text(kMemoHeader);
  for (const Known& known : memo) {
    absl::StrAppend(&text, ToHex(known.digest), " ", known.info.device, " ",
                    known.info.inode, " ", known.info.size, " ",
                    Nanoseconds(known.info.modified), " ",
                    Nanoseconds(known.info.changed), "\n");
  }
  text += CheckLine(text);

  const std::string dir = memo_path_.substr(0, memo_path_.rfind('/'));
  const std::string temp = absl::StrCat(dir, "/tmp-weights");
  EW_RETURN_IF_ERROR(env_.MakeDir(dir));
  absl::Status status = env_.Unlink(temp);
  if (!status.ok() && !absl::IsNotFound(status)) {
    return status;
  }
  EW_ASSIGN_OR_RETURN(std::unique_ptr<File> file, env_.Create(temp, {}));
  const std::array<ConstBytes, 1> part = {
      ConstBytes(reinterpret_cast<const std::byte*>(text.data()), text.size())};
  status = file->WriteAt(0, part);
  if (status.ok()) {
    status = file->Sync();
  }
  file.reset();
  if (status.ok()) {
    status = env_.Rename(temp, memo_path_);
  }
  if (!status.ok()) {
    env_.Unlink(temp).IgnoreError();
  }
  return status;
}

}  // namespace everwarm::store
