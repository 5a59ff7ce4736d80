// everwarm doctor: what the disk under a cache directory is good for.
#include "store/doctor.h"

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "store/directory_layout.h"
#include "store/posix_env.h"

namespace everwarm::cli {
namespace {

using store::DiskCheck;
using store::DiskReport;
using store::Finding;

struct FileSystem {
  long magic = 0;
  const char* name = "unknown";
  bool in_memory = false;
  // Somebody else keeps the bytes, and says when they are safe.
  bool remote = false;
};

FileSystem FileSystemOf(const std::string& dir) {
  constexpr std::array<FileSystem, 15> kKnown = {{
      {0xEF53, "ext4"},
      {0x58465342, "xfs"},
      {0x9123683E, "btrfs"},
      {0x2FC12FC1, "zfs"},
      {0xF2F52010, "f2fs"},
      {0x794C7630, "overlay"},
      {0x4D44, "fat"},
      {0x2011BAB0, "exfat"},
      {0x01021994, "tmpfs", true},
      {static_cast<long>(0x858458F6), "ramfs", true},
      {0x6969, "nfs", false, true},
      {static_cast<long>(0xFF534D42), "cifs", false, true},
      {static_cast<long>(0xFE534D42), "smb2", false, true},
      {0x01021997, "9p", false, true},
      {0x65735546, "fuse", false, true},
  }};
  struct statfs info;
  if (::statfs(dir.c_str(), &info) == 0) {
    for (const FileSystem& known : kKnown) {
      if (known.magic == info.f_type) {
        return known;
      }
    }
  }
  return {};
}

DiskCheck CheckFileSystem(const FileSystem& system) {
  if (system.in_memory) {
    return {"file system", Finding::kBad,
            absl::StrCat(system.name, ", which is memory")};
  }
  if (system.remote) {
    return {"file system", Finding::kDoubt,
            absl::StrCat(system.name,
                         ": what is kept, and when, is up to another program "
                         "or machine")};
  }
  return {"file system", Finding::kGood, system.name};
}

// Whether files and directories are made for their owner alone.
DiskCheck CheckModes(store::Env& env, const std::string& dir) {
  const std::string path =
      absl::StrCat(dir, "/", store::TempName("doctor-"),
                   absl::Hex(env.UniqueNumber(), absl::kZeroPad16), "-mode");
  const auto file = env.Create(path, {});
  struct stat of_file {};
  struct stat of_dir {};
  const bool known = file.ok() && ::stat(path.c_str(), &of_file) == 0 &&
                     ::stat(dir.c_str(), &of_dir) == 0;
  env.Unlink(path).IgnoreError();
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (!known) {
    return {"access", Finding::kBad,
            file.ok() ? "a new file cannot be looked at"
                      : std::string(file.status().message())};
  }
  if ((of_file.st_mode & kOthers) != 0) {
    return {"access", Finding::kBad,
            "files are open to others here, whatever mode they are made with"};
  }
  // Who may write there can put files of their own in the place of ours.
  if (of_dir.st_uid != ::geteuid() && of_dir.st_uid != 0) {
    return {"access", Finding::kBad,
            absl::StrCat(dir, " belongs to another user (", of_dir.st_uid,
                         "), who may replace what is in it")};
  }
  if ((of_dir.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return {"access", Finding::kBad,
            absl::StrCat("others may write to ", dir,
                         ", and replace what is in it; chmod 700 helps")};
  }
  if ((of_dir.st_mode & kOthers) != 0) {
    return {"access", Finding::kDoubt,
            absl::StrCat("files are for you alone, but others may list ", dir)};
  }
  return {"access", Finding::kGood, "files are for you alone"};
}

const char* Word(Finding finding) {
  switch (finding) {
    case Finding::kGood:
      return "good";
    case Finding::kDoubt:
      return "doubt";
    case Finding::kBad:
      break;
  }
  return "BAD";
}

void PrintPromise(const char* promise, Finding finding) {
  const char* answer = finding == Finding::kGood    ? "yes"
                       : finding == Finding::kDoubt ? "perhaps, see 'doubt'"
                                                    : "NO";
  std::printf("  %-58s %s\n", promise, answer);
}

Finding Worst(std::initializer_list<Finding> findings) {
  return std::max(findings);
}

void Print(const std::string& dir, const DiskReport& report) {
  std::printf("%s\n\n", dir.c_str());
  for (const DiskCheck& check : report.checks) {
    std::printf("  %-6s %-20s %s\n", Word(check.finding), check.name.c_str(),
                check.text.c_str());
  }
  using store::kCheckDirSync;
  using store::kCheckRename;
  using store::kCheckSync;
  const Finding crash =
      Worst({report.Of(kCheckRename), report.Of(store::kCheckSpeed)});
  std::printf("\nWhat can be promised here:\n");
  PrintPromise("what was stored survives a crash of the server", crash);
  PrintPromise("what is called durable survives a power loss",
               Worst({crash, report.Of(kCheckSync), report.Of(kCheckDirSync),
                      report.Of("file system")}));
  PrintPromise(
      "--ssd-cache and --ssd-min-free are kept",
      Worst({report.Of(store::kCheckSizes), report.Of(store::kCheckSpace)}));
  PrintPromise("what goes first was not used for longest, also after a restart",
               report.Of(store::kCheckTimes));
  PrintPromise("two servers never use the directory at once",
               report.Of(store::kCheckLock));
  PrintPromise("nobody else reads it", report.Of("access"));
  std::printf(
      "\nA disk that lies about fsync cannot be told from one that does not "
      "without cutting its power.\n");
}

}  // namespace

int Doctor(DoctorOptions options) {
  if (options.cache_dir.empty()) {
    absl::StatusOr<std::string> dir = DefaultCacheDir();
    if (!dir.ok()) {
      return Fail(dir.status());
    }
    options.cache_dir = *dir;
  }
  store::PosixEnv env;
  if (absl::Status status = env.MakeDir(options.cache_dir); !status.ok()) {
    return Fail(status);
  }
  const FileSystem system = FileSystemOf(options.cache_dir);
  const SystemClock clock;
  DiskReport report;
  report.checks.push_back(CheckFileSystem(system));
  report.checks.push_back(CheckModes(env, options.cache_dir));
  const DiskReport tried =
      store::ExamineDisk(env, clock, options.cache_dir,
                         {.in_memory = system.in_memory,
                          .direct = env.DirectWorks(options.cache_dir)});
  report.checks.insert(report.checks.end(), tried.checks.begin(),
                       tried.checks.end());
  Print(options.cache_dir, report);
  return report.worst() == Finding::kBad ? kExitFailed : kExitOk;
}

}  // namespace everwarm::cli
