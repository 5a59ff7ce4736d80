// The subcommands. Each returns the exit code of the process, and has said on
// standard error in one line why it is not 0.
#ifndef EVERWARM_CLI_COMMANDS_H_
#define EVERWARM_CLI_COMMANDS_H_

#include "absl/status/status.h"
#include "base/log.h"
#include "cli/options.h"

namespace everwarm::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
// Stopped as asked, but not everything could be made durable.
inline constexpr int kExitNotDurable = 3;
// Files were read, and some are damaged or could not be looked at.
inline constexpr int kExitDamaged = 4;

// "everwarm: message", and the code for it.
int Fail(const absl::Status& status);

// To standard error.
Logger MakeLogger(const std::string& level);

int Serve(ServeOptions options);
int RunPrompt(RunOptions options);
int CacheLs(CacheOptions options);
int CacheVerify(CacheVerifyOptions options);
int CacheGc(CacheGcOptions options);
int CacheRm(CacheRmOptions options);
int Doctor(DoctorOptions options);

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_COMMANDS_H_
