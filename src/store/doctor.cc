#include "store/doctor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "store/aligned_buffer.h"
#include "store/directory_layout.h"

namespace everwarm::store {
namespace {

using std::chrono::duration;
using std::chrono::microseconds;

constexpr int kSyncs = 16;
// No disk writes a page and says so in less; what keeps writes in a memory of
// its own does.
constexpr microseconds kFastestSync{15};
constexpr uint64_t kPieceBytes = kMiB;
constexpr uint64_t kLittleSpace = 2 * kGiB;

std::string Micros(Clock::Monotonic::duration time) {
  return absl::StrFormat("%.2f ms", duration<double, std::milli>(time).count());
}

std::string Rate(uint64_t bytes, Clock::Monotonic::duration time) {
  const double seconds = std::max(duration<double>(time).count(), 1e-9);
  return absl::StrCat(
      FormatBytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)),
      "/s");
}

class Examination {
 public:
  Examination(Env& env, const Clock& clock, std::string dir,
              const DiskFacts& facts)
      : env_(env),
        clock_(clock),
        dir_(std::move(dir)),
        facts_(facts),
        tag_(absl::StrCat(absl::Hex(env.UniqueNumber(), absl::kZeroPad16))) {}
  ~Examination() {
    for (const std::string& path : made_) {
      env_.Unlink(path).IgnoreError();
    }
  }

  DiskReport Run() {
    Add(kCheckSpace, Space());
    Add(kCheckSync, Syncs());
    Add(kCheckDirSync, DirSyncs());
    Add(kCheckRename, Renames());
    Add(kCheckLock, Locks());
    Add(kCheckTimes, Times());
    Add(kCheckDirect, Direct());
    Add(kCheckSpeed, Speed());
    if (!large_path_.empty()) {
      Add(kCheckSizes, Sizes());
    }
    return std::move(report_);
  }

 private:
  struct Result {
    Finding finding = Finding::kGood;
    std::string text;
  };
  using Checked = absl::StatusOr<Result>;

  void Add(const char* name, const Checked& result) {
    if (result.ok()) {
      report_.checks.push_back({name, result->finding, result->text});
    } else if (absl::IsNotFound(result.status())) {
      // What every server does at its start with temporary files.
      report_.checks.push_back(
          {name, Finding::kDoubt,
           absl::StrCat("somebody removed a file under test, as a server does "
                        "that starts; try again: ",
                        result.status().message())});
    } else {
      report_.checks.push_back(
          {name, Finding::kBad, std::string(result.status().message())});
    }
  }

  std::string PathOf(const std::string& name) const {
    return absl::StrCat(dir_, "/", TempName("doctor-"), tag_, "-", name);
  }

  absl::StatusOr<std::unique_ptr<File>> NewFile(std::string* path) {
    *path = PathOf(absl::StrCat(next_++));
    made_.push_back(*path);
    return env_.Create(*path, {.direct = true});
  }

  // A new file with one page of this byte, synced.
  absl::StatusOr<std::string> WritePage(std::byte content) {
    std::string path;
    EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, NewFile(&path));
    const AlignedBuffer page(kIoAlignment);
    std::memset(page.data(), static_cast<int>(content), page.size());
    const std::array<ConstBytes, 1> bytes = {
        ConstBytes(page.data(), page.size())};
    EW_RETURN_IF_ERROR(file->WriteAt(0, bytes));
    EW_RETURN_IF_ERROR(file->Sync());
    return path;
  }

  Checked Space() {
    EW_ASSIGN_OR_RETURN(const SpaceInfo space, env_.Space(dir_));
    const std::string text =
        absl::StrCat(FormatBytes(space.free_bytes), " of ",
                     FormatBytes(space.total_bytes), " are free");
    if (space.free_bytes < kLittleSpace) {
      return Result{
          Finding::kDoubt,
          absl::StrCat(text, ": little is kept before old blocks go")};
    }
    return Result{Finding::kGood, text};
  }

  Checked Syncs() {
    std::string path;
    EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, NewFile(&path));
    const AlignedBuffer page(kIoAlignment);
    const std::array<ConstBytes, 1> bytes = {
        ConstBytes(page.data(), page.size())};
    std::vector<Clock::Monotonic::duration> times;
    for (int i = 0; i < kSyncs; ++i) {
      EW_RETURN_IF_ERROR(file->WriteAt(i * kIoAlignment, bytes));
      const Clock::Monotonic began = clock_.Now();
      EW_RETURN_IF_ERROR(file->Sync());
      times.push_back(clock_.Now() - began);
    }
    std::sort(times.begin(), times.end());
    const auto median = times[times.size() / 2];
    const std::string text = absl::StrCat("works; ", Micros(median), " (up to ",
                                          Micros(times.back()), ")");
    if (facts_.in_memory) {
      return Result{Finding::kBad,
                    "this is memory, not a disk: all is gone when the machine "
                    "goes off"};
    }
    if (median < kFastestSync) {
      return Result{Finding::kDoubt,
                    absl::StrCat(text,
                                 ": sooner than a disk can write; it may only "
                                 "say so")};
    }
    return Result{Finding::kGood, text};
  }

  Checked DirSyncs() {
    std::vector<Clock::Monotonic::duration> times;
    for (int i = 0; i < kSyncs / 4; ++i) {
      EW_RETURN_IF_ERROR(WritePage(std::byte{1}).status());
      const Clock::Monotonic began = clock_.Now();
      EW_RETURN_IF_ERROR(env_.SyncDir(dir_));
      times.push_back(clock_.Now() - began);
    }
    std::sort(times.begin(), times.end());
    return Result{Finding::kGood,
                  absl::StrCat("works; ", Micros(times[times.size() / 2]))};
  }

  Checked Renames() {
    EW_ASSIGN_OR_RETURN(const std::string from, WritePage(std::byte{2}));
    EW_ASSIGN_OR_RETURN(const std::string to, WritePage(std::byte{3}));
    EW_RETURN_IF_ERROR(env_.Rename(from, to));
    EW_ASSIGN_OR_RETURN(const std::unique_ptr<File> file,
                        env_.OpenForRead(to, {.direct = true}));
    const AlignedBuffer page(kIoAlignment);
    const std::array<MutableBytes, 1> part = {page.first(kIoAlignment)};
    EW_ASSIGN_OR_RETURN(const size_t bytes, file->ReadAt(0, part));
    if (bytes != kIoAlignment || page.data()[0] != std::byte{2} ||
        !absl::IsNotFound(env_.Stat(from).status())) {
      return Result{Finding::kBad,
                    "does not put the new file in the old one's place"};
    }
    return Result{Finding::kGood, "replaces a file in one step"};
  }

  Checked Locks() {
    const std::string path = PathOf("lock");
    made_.push_back(path);
    EW_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> held, env_.Lock(path));
    if (env_.Lock(path).ok()) {
      return Result{Finding::kBad,
                    "is given twice: two servers could use the directory at "
                    "once and spoil each other's work"};
    }
    return Result{Finding::kGood, "keeps a second server out"};
  }

  Checked Times() {
    EW_ASSIGN_OR_RETURN(const std::string path, WritePage(std::byte{4}));
    const Clock::Wall wanted = clock_.WallNow() - std::chrono::hours(1000);
    EW_RETURN_IF_ERROR(env_.SetModified(path, wanted));
    EW_ASSIGN_OR_RETURN(const FileInfo info, env_.Stat(path));
    const auto off = info.modified > wanted ? info.modified - wanted
                                            : wanted - info.modified;
    if (off > std::chrono::seconds(2)) {
      return Result{Finding::kDoubt,
                    "cannot be set: after a restart it is not known what was "
                    "used last, and what goes first is a guess"};
    }
    return Result{Finding::kGood, "can be set"};
  }

  Checked Direct() const {
    if (facts_.direct) {
      return Result{Finding::kGood, "works: blocks pass the page cache"};
    }
    return Result{Finding::kDoubt,
                  "is refused: all works, slower, and takes memory of the page "
                  "cache"};
  }

  Checked Speed() {
    const uint64_t total = facts_.test_bytes / kPieceBytes * kPieceBytes;
    const AlignedBuffer piece(kPieceBytes);
    const AlignedBuffer read(kPieceBytes);
    // Not zeros: a disk that compresses would look too good.
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at < piece.size(); at += sizeof(state)) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(piece.data() + at, &state, sizeof(state));
    }
    std::string path;
    EW_ASSIGN_OR_RETURN(std::unique_ptr<File> file, NewFile(&path));
    const std::array<ConstBytes, 1> out = {
        ConstBytes(piece.data(), piece.size())};
    Clock::Monotonic began = clock_.Now();
    for (uint64_t at = 0; at < total; at += kPieceBytes) {
      EW_RETURN_IF_ERROR(file->WriteAt(at, out));
    }
    EW_RETURN_IF_ERROR(file->Sync());
    const auto writing = clock_.Now() - began;
    EW_ASSIGN_OR_RETURN(file, env_.OpenForRead(path, {.direct = true}));
    const std::array<MutableBytes, 1> in = {read.first(kPieceBytes)};
    began = clock_.Now();
    for (uint64_t at = 0; at < total; at += kPieceBytes) {
      EW_ASSIGN_OR_RETURN(const size_t bytes, file->ReadAt(at, in));
      if (bytes != kPieceBytes ||
          std::memcmp(read.data(), piece.data(), kPieceBytes) != 0) {
        return Result{Finding::kBad, "what was read is not what was written"};
      }
    }
    large_path_ = path;
    return Result{Finding::kGood,
                  absl::StrCat("writes ", Rate(total, writing), ", reads ",
                               Rate(total, clock_.Now() - began))};
  }

  Checked Sizes() {
    EW_ASSIGN_OR_RETURN(const FileInfo info, env_.Stat(large_path_));
    if (info.allocated < info.size) {
      return Result{
          Finding::kDoubt,
          absl::StrCat("a file of ", FormatBytes(info.size),
                       " is said to take ", FormatBytes(info.allocated),
                       ": a cap counts what the file system says")};
    }
    return Result{Finding::kGood, "are those of the disk: a cap can be kept"};
  }

  Env& env_;
  const Clock& clock_;
  const std::string dir_;
  const DiskFacts facts_;
  // In the names of all files: two examinations at the same time leave each
  // other's alone.
  const std::string tag_;
  DiskReport report_;
  std::vector<std::string> made_;
  std::string large_path_;
  int next_ = 0;
};

}  // namespace

Finding DiskReport::Of(const std::string& name) const {
  Finding worst = Finding::kGood;
  for (const DiskCheck& check : checks) {
    if (check.name == name) {
      worst = std::max(worst, check.finding);
    }
  }
  return worst;
}

Finding DiskReport::worst() const {
  Finding worst = Finding::kGood;
  for (const DiskCheck& check : checks) {
    worst = std::max(worst, check.finding);
  }
  return worst;
}

DiskReport ExamineDisk(Env& env, const Clock& clock, const std::string& dir,
                       const DiskFacts& facts) {
  return Examination(env, clock, dir, facts).Run();
}

}  // namespace everwarm::store
