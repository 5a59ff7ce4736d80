// SHA-256 by OpenSSL.
#ifndef EVERWARM_BASE_SHA256_H_
#define EVERWARM_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/ids.h"

namespace everwarm {

// Threads: one at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size);
  void Update(std::string_view text) { Update(text.data(), text.size()); }
  // Ends the computation; the object may only be destroyed afterwards.
  Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace everwarm

#endif  // EVERWARM_BASE_SHA256_H_
