// Fields of the store's files: little-endian numbers and digests at fixed
// places.
#ifndef EVERWARM_STORE_FILE_FIELDS_H_
#define EVERWARM_STORE_FILE_FIELDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/ids.h"

namespace everwarm::store {

template <typename T>
void Put(std::byte* bytes, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] =
        static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T Get(const std::byte* bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

inline void PutDigest(std::byte* bytes, size_t at, const Digest& digest) {
  std::memcpy(bytes + at, digest.data(), digest.size());
}

inline Digest GetDigest(const std::byte* bytes, size_t at) {
  Digest digest;
  std::memcpy(digest.data(), bytes + at, digest.size());
  return digest;
}

inline bool AllZero(const std::byte* bytes, size_t begin, size_t end) {
  return std::all_of(bytes + begin, bytes + end,
                     [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace everwarm::store

#endif  // EVERWARM_STORE_FILE_FIELDS_H_
