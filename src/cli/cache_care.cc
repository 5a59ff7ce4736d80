// everwarm cache verify, gc and rm.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "cache/session_record.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "engine/engine.h"
#include "store/maintenance.h"
#include "store/posix_env.h"

namespace everwarm::cli {
namespace {

absl::Status ResolveDir(std::string& dir) {
  if (dir.empty()) {
    EW_ASSIGN_OR_RETURN(dir, DefaultCacheDir());
  }
  return absl::OkStatus();
}

// Says what was removed; an error when something could not be.
int Say(const store::Removed& removed) {
  std::printf("removed %llu files, %s\n",
              static_cast<unsigned long long>(removed.files),
              FormatBytes(removed.bytes).c_str());
  if (removed.failed > 0) {
    return Fail(absl::UnavailableError(absl::StrCat(
        removed.failed,
        " files could not be removed: ", removed.failure.message())));
  }
  return removed.failure.ok() ? kExitOk : Fail(removed.failure);
}

store::Removed& operator+=(store::Removed& sum, const store::Removed& more) {
  sum.files += more.files;
  sum.bytes += more.bytes;
  sum.failed += more.failed;
  sum.failure.Update(more.failure);
  return sum;
}

absl::StatusOr<store::Removed> CollectGarbage(store::Env& env,
                                              const CacheGcOptions& options) {
  std::vector<Fingerprint> keep;
  for (const std::string& digits : options.keep) {
    EW_ASSIGN_OR_RETURN(const Fingerprint fingerprint,
                        store::FindFingerprint(env, options.cache_dir, digits));
    keep.push_back(fingerprint);
  }
  EW_ASSIGN_OR_RETURN(store::DirectoryCleaner cleaner,
                      store::DirectoryCleaner::Open(&env, options.cache_dir));
  store::Removed removed = cleaner.RemoveLeftovers();
  if (!keep.empty()) {
    removed += cleaner.RemoveOtherModels(keep);
  }
  return removed;
}

absl::StatusOr<store::Removed> Remove(store::Env& env,
                                      const CacheRmOptions& options) {
  if (int{options.all} + int{!options.older_than.empty()} +
          int{!options.session.empty()} !=
      1) {
    return absl::InvalidArgumentError(
        "cache rm: say what to remove, --all, --older-than or --session");
  }
  std::chrono::milliseconds age{0};
  if (!options.older_than.empty()) {
    const absl::StatusOr<std::chrono::milliseconds> parsed =
        ParseDuration(options.older_than);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--older-than: ", parsed.status().message()));
    }
    age = *parsed;
  }
  EW_ASSIGN_OR_RETURN(store::DirectoryCleaner cleaner,
                      store::DirectoryCleaner::Open(&env, options.cache_dir));
  if (options.all) {
    return cleaner.RemoveAll();
  }
  if (!options.session.empty()) {
    return cleaner.RemoveSession(cache::SessionIdOf(
        options.session.substr(0, engine::kMaxSessionBytes)));
  }
  return cleaner.RemoveUnusedSince(SystemClock().WallNow() - age);
}

}  // namespace

int CacheVerify(CacheVerifyOptions options) {
  if (absl::Status status = ResolveDir(options.cache_dir); !status.ok()) {
    return Fail(status);
  }
  store::PosixEnv env;
  const SystemClock clock;
  absl::StatusOr<store::VerifyReport> report;
  {
    Progress progress("reading blocks", &clock);
    report = store::VerifyDirectory(
        env, options.cache_dir,
        [](const std::string& path, const absl::Status& why) {
          std::printf("damaged: %s: %s\n", path.c_str(),
                      std::string(why.message()).c_str());
        },
        [&progress](uint64_t done, uint64_t all) {
          progress.Update(static_cast<float>(done) / static_cast<float>(all));
        });
  }
  if (!report.ok()) {
    return Fail(report.status());
  }
  std::printf("%s: read %llu blocks and %llu sessions, %s; %llu damaged\n",
              options.cache_dir.c_str(),
              static_cast<unsigned long long>(report->files),
              static_cast<unsigned long long>(report->sessions),
              FormatBytes(report->bytes).c_str(),
              static_cast<unsigned long long>(report->damaged));
  if (report->other_version > 0) {
    std::printf("%llu of them are of another version and were not read\n",
                static_cast<unsigned long long>(report->other_version));
  }
  return report->damaged > 0 ? kExitDamaged : kExitOk;
}

int CacheGc(CacheGcOptions options) {
  if (absl::Status status = ResolveDir(options.cache_dir); !status.ok()) {
    return Fail(status);
  }
  store::PosixEnv env;
  const absl::StatusOr<store::Removed> removed = CollectGarbage(env, options);
  return removed.ok() ? Say(*removed) : Fail(removed.status());
}

int CacheRm(CacheRmOptions options) {
  if (absl::Status status = ResolveDir(options.cache_dir); !status.ok()) {
    return Fail(status);
  }
  store::PosixEnv env;
  const absl::StatusOr<store::Removed> removed = Remove(env, options);
  return removed.ok() ? Say(*removed) : Fail(removed.status());
}

}  // namespace everwarm::cli
