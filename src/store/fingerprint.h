// What the bytes of blocks depend on besides their tokens, as one number.
#ifndef EVERWARM_STORE_FINGERPRINT_H_
#define EVERWARM_STORE_FINGERPRINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/log.h"
#include "store/block_file.h"
#include "store/env.h"

namespace everwarm::store {

struct FingerprintParts {
  // SHA-256 of the weights file.
  Digest weights{};
  // Codec and geometry by GroupIndex; all but states of one block size.
  std::vector<BySpan<GroupScheme>> groups;
  // Changes whenever the same weights and tokens may give other bytes.
  std::string numerics_version;
};
Fingerprint ComputeFingerprint(const FingerprintParts& parts);

struct HashedWeights {
  Digest digest{};
  // Of the file that was hashed, as it was all the time.
  FileInfo file;
};

// Bytes hashed so far and in all. Called now and then, on the caller's thread.
using HashProgress = std::function<void(uint64_t done, uint64_t total)>;

// SHA-256 of a weights file, from the memo where the file is the same as when
// it was hashed (device, inode, size, times).
//
// The memo is a small file in the cache directory (docs/format.md). Without a
// directory, with a damaged memo or one that cannot be written, the file is
// hashed each time: never an error.
//
// Threads:  one at a time.
// Blocks:   while a file is hashed, about 1 GB/s.
class WeightsHasher {
 public:
  // `memo_path` may be empty: no memo. `env` outlives the hasher.
  WeightsHasher(Env* env, std::string memo_path, Logger logger);

  // Errors: those of Env::OpenForRead(); kUnavailable, the file changed while
  // it was read.
  absl::StatusOr<HashedWeights> Hash(const std::string& path,
                                     const HashProgress& progress);

 private:
  struct Known {
    Digest digest{};
    FileInfo info;
  };

  absl::StatusOr<Digest> HashFile(File& file, const std::string& path,
                                  uint64_t size, const HashProgress& progress);
  // Empty when there is no usable memo.
  std::string ReadMemoText();
  std::vector<Known> ReadMemo();
  void Remember(const FileInfo& info, const Digest& digest);
  absl::Status WriteMemo(const std::vector<Known>& memo);

  Env& env_;
  const std::string memo_path_;
  const Logger logger_;
};

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_FINGERPRINT_H_
