// What the blocks of a weight type consist of: in files and in panels.
#ifndef EVERWARM_KERNELS_LINEAR_LAYOUT_H_
#define EVERWARM_KERNELS_LINEAR_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear.h"

namespace everwarm::kernels {

// A panel's outputs lie in two halves of vectors.
inline constexpr uint32_t kHalfOutputs = kPanelOutputs / 2;

struct WeightFormat {
  int bits;
  int zero;  // code of 0
  bool has_minimum;

  constexpr size_t NumParams() const { return has_minimum ? 2 : 1; }
  // Of one block of one output in a file: halves, fifth bits, codes.
  constexpr size_t FileBlockBytes() const {
    return 2 * NumParams() + kLinearBlock * bits / 8;
  }
  // Of one block of one panel.
  constexpr size_t PanelBlockBytes() const {
    return kPanelOutputs * FileBlockBytes();
  }
  // Of the codes of one half of a panel.
  constexpr size_t HalfCodesBytes() const {
    return kHalfOutputs * kLinearBlock * bits / 8;
  }
};

constexpr WeightFormat FormatOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return {4, 8, false};
    case WeightType::kQ4_1:
      return {4, 0, true};
    case WeightType::kQ5_0:
      return {5, 16, false};
    case WeightType::kQ5_1:
      return {5, 0, true};
    case WeightType::kQ8_0:
      return {8, 128, false};
  }
  return {};
}

// One block of one output, as in a file: scale and minimum, which are halves;
// four bytes of fifth bits, those of a bit per weight in order; codes: bytes,
// or nibbles of which the low ones of 16 bytes come first. 8-bit codes are
// signed there.
struct FileBlock {
  uint16_t params[2];
  uint8_t codes[kLinearBlock];
};
FileBlock ReadBlock(const WeightFormat& format, const std::byte* bytes);
// The same from a block of a panel.
FileBlock ReadPanelBlock(const WeightFormat& format, const std::byte* panel,
                         uint32_t output);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_LINEAR_LAYOUT_H_
