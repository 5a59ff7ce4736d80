#include "base/huge_memory.h"

#include <sys/mman.h>

#include "base/block_geometry.h"

namespace everwarm {
namespace {

// Of x86-64 and of most arm64 systems.
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

std::optional<HugeMemory> HugeMemory::Map(size_t bytes) {
  // Whole pages, so that what is cut off begins on one.
  bytes = AlignUp(bytes, kSlotAlignment);
  const size_t padded = bytes + kHugePageBytes;
  void* const raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return std::nullopt;
  }
  std::byte* const begin = static_cast<std::byte*>(raw);
  const size_t address = reinterpret_cast<size_t>(raw);
  const size_t lead = AlignUp(address, kHugePageBytes) - address;
  if (lead > 0) {
    munmap(begin, lead);
  }
  munmap(begin + lead + bytes, padded - lead - bytes);
  // Only advice: without huge pages everything works the same.
  madvise(begin + lead, bytes, MADV_HUGEPAGE);
  return HugeMemory(begin + lead, bytes);
}

HugeMemory::~HugeMemory() {
  if (data_ != nullptr) {
    munmap(data_, size_);
  }
}

}  // namespace everwarm
