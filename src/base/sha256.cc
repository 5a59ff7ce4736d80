#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace everwarm {

struct Sha256::Context {
  EVP_MD_CTX* evp = nullptr;
  ~Context() { EVP_MD_CTX_free(evp); }
};

namespace {

// OpenSSL fails here only when memory is gone or its library is broken; there
// is no identity without a digest, so nothing can go on.
void Require(bool ok) {
  if (!ok) {
    std::abort();
  }
}

}  // namespace

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  context_->evp = EVP_MD_CTX_new();
  Require(context_->evp != nullptr);
  Require(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) {
  Require(EVP_DigestUpdate(context_->evp, data, size) == 1);
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned int size = 0;
  Require(EVP_DigestFinal_ex(context_->evp, digest.data(), &size) == 1);
  Require(size == digest.size());
  return digest;
}

}  // namespace everwarm
