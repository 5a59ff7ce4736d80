#include "kernels/linear_layout.h"

#include <algorithm>
#include <cstring>

namespace everwarm::kernels {
namespace {

// Inputs that one dot product takes at once.
constexpr uint32_t kStep = 4;
constexpr size_t kVectorBytes = kHalfOutputs * kStep;

// Where one output's part of step `step` lies in its half of a panel.
uint8_t* At(uint8_t* half, uint32_t step, uint32_t output) {
  return half + step * kVectorBytes + size_t{output} * kStep;
}

// Bit `s` of byte k becomes bit 4 s + k of a block's fifth bits.
uint32_t FifthBitsByInput(uint32_t fifth) {
  uint32_t turned = 0;
  for (uint32_t i = 0; i < kLinearBlock; ++i) {
    turned |= (fifth >> i & 1) << (i % kStep * 8 + i / kStep);
  }
  return turned;
}

// Puts the codes of one output into its half of a panel. Codes of 4 bits lie in
// a file as in a panel: byte i has inputs i and i + 16.
void PutCodes(const WeightFormat& format, const std::byte* codes,
              uint32_t output, uint8_t* half) {
  if (format.bits == 5) {
    uint32_t fifth;
    std::memcpy(&fifth, codes, sizeof(fifth));
    fifth = FifthBitsByInput(fifth);
    std::memcpy(At(half, 4, output), &fifth, sizeof(fifth));
    codes += sizeof(fifth);
  }
  for (uint32_t step = 0; step < (format.bits == 8 ? 8u : 4u); ++step) {
    uint32_t four;
    std::memcpy(&four, codes + step * kStep, sizeof(four));
    // Signed to unsigned, less the zero that the format says.
    if (format.bits == 8) four ^= 0x80808080u;
    std::memcpy(At(half, step, output), &four, sizeof(four));
  }
}

}  // namespace

FileBlock ReadBlock(const WeightFormat& format, const std::byte* bytes) {
  FileBlock block = {};
  std::memcpy(block.params, bytes, 2 * format.NumParams());
  bytes += 2 * format.NumParams();
  uint32_t fifth = 0;
  if (format.bits == 5) {
    std::memcpy(&fifth, bytes, sizeof(fifth));
    bytes += sizeof(fifth);
  }
  for (uint32_t i = 0; i < kLinearBlock; ++i) {
    if (format.bits == 8) {
      block.codes[i] = static_cast<uint8_t>(bytes[i]) ^ 0x80;
      continue;
    }
    const auto byte = static_cast<uint8_t>(bytes[i % 16]);
    block.codes[i] = static_cast<uint8_t>((i < 16 ? byte & 15 : byte >> 4) |
                                          (fifth >> i & 1) << 4);
  }
  return block;
}

FileBlock ReadPanelBlock(const WeightFormat& format, const std::byte* panel,
                         uint32_t output) {
  FileBlock block = {};
  const auto* half = reinterpret_cast<const uint8_t*>(panel) +
                     output / kHalfOutputs * format.HalfCodesBytes();
  for (uint32_t i = 0; i < kLinearBlock; ++i) {
    const uint32_t step = i / kStep;
    const size_t lane = size_t{output % kHalfOutputs} * kStep + i % kStep;
    if (format.bits == 8) {
      block.codes[i] = half[step * kVectorBytes + lane];
      continue;
    }
    block.codes[i] = half[step % 4 * kVectorBytes + lane] >> step / 4 * 4 & 15;
    if (format.bits == 5) {
      block.codes[i] |= (half[4 * kVectorBytes + lane] >> step & 1) << 4;
    }
  }
  const std::byte* params = panel + 2 * format.HalfCodesBytes();
  for (size_t i = 0; i < format.NumParams(); ++i) {
    std::memcpy(&block.params[i], params + 2 * (i * kPanelOutputs + output), 2);
  }
  return block;
}

size_t PanelBytes(const MatrixShape& shape) {
  return shape.NumBlocks() * FormatOf(shape.type).PanelBlockBytes();
}

size_t PackedBytes(const MatrixShape& shape) {
  return shape.NumPanels() * PanelBytes(shape);
}

void PackMatrix(const MatrixShape& shape, const std::byte* rows,
                std::byte* packed) {
  const WeightFormat format = FormatOf(shape.type);
  const size_t row_bytes = shape.NumBlocks() * format.FileBlockBytes();
  for (uint32_t panel = 0; panel < shape.NumPanels(); ++panel) {
    const uint32_t first = panel * kPanelOutputs;
    const uint32_t count = std::min(kPanelOutputs, shape.outputs - first);
    std::byte* block = packed + panel * PanelBytes(shape);
    if (count < kPanelOutputs) {
      std::fill_n(block, PanelBytes(shape), std::byte{0});
    }
    for (uint32_t b = 0; b < shape.NumBlocks(); ++b) {
      auto* codes = reinterpret_cast<uint8_t*>(block);
      std::byte* params = block + 2 * format.HalfCodesBytes();
      for (uint32_t o = 0; o < count; ++o) {
        const std::byte* from =
            rows + size_t{first + o} * row_bytes + b * format.FileBlockBytes();
        for (size_t i = 0; i < format.NumParams(); ++i) {
          std::memcpy(params + 2 * (i * kPanelOutputs + o), from + 2 * i, 2);
        }
        PutCodes(format, from + 2 * format.NumParams(), o % kHalfOutputs,
                 codes + o / kHalfOutputs * format.HalfCodesBytes());
      }
      block += format.PanelBlockBytes();
    }
  }
}

}  // namespace everwarm::kernels
