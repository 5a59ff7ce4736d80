#include "store/durable_dir.h"

#include "base/status_macros.h"

namespace everwarm::store {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::Status MakeDurableDir(Env& env, const std::string& path,
                            const Logger& logger) {
  EW_RETURN_IF_ERROR(env.MakeDir(path));
  std::string dir = ParentOf(path);
  absl::Status status = env.SyncDir(dir);
  // One that we may not even open was made by somebody else, long ago.
  if (!status.ok() && !absl::IsPermissionDenied(status)) {
    return status;
  }
  while (dir != "/" && dir != ".") {
    dir = ParentOf(dir);
    status = env.SyncDir(dir);
    if (!status.ok()) {
      logger->debug("{}", status.ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::store
