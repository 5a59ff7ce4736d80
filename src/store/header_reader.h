// Reads the headers of many block files at once.
#ifndef EVERWARM_STORE_HEADER_READER_H_
#define EVERWARM_STORE_HEADER_READER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "store/block_file.h"
#include "store/env.h"

namespace everwarm::store {

using HeaderFound = absl::FunctionRef<void(size_t index, const FileInfo& info,
                                           absl::StatusOr<BlockHeader> header)>;

// Calls found(index into paths, ...) once for each path, in any order, on this
// thread. `info` is empty where the file could not be opened.
// Errors of a header: those of Env::OpenForRead(); kDataLoss, damaged, cut, or
// under a name that is not its own; kFailedPrecondition, not a regular file;
// kUnimplemented, another format version.
void ReadHeaders(Env& env, const std::vector<std::string>& paths,
                 HeaderFound found);

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_HEADER_READER_H_
