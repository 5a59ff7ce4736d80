// Products of rows of activations with a matrix of quantised weights, which
// lies in a layout of our own.
//
// A matrix is [outputs, inputs]; along its inputs, blocks of 32 weights share a
// scale and, in some types, a smallest value:
//
//   weight = scale * (code - zero) + minimum
//
// The layout puts 32 outputs side by side in a panel, so that one load serves
// 16 of them and one read of the weights serves several rows. A panel is one
// record per block of inputs, a multiple of 64 bytes:
//
//   codes   for each half (16 outputs) of the panel, vectors of 64 bytes:
//           output o has bytes 4 o .. 4 o + 3, inputs 4 s .. 4 s + 3 of step s.
//           4 bits: vector i has step i in its low nibbles, i + 4 in its high
//           ones. 5 bits: then one more vector, whose bit s of a byte is the
//           fifth bit of that byte's code in step s. 8 bits: vector s is step
//           s.
//   scales  32 halves
//   minima  32 halves, in types that have them
//
// Activations become 8-bit codes in blocks of 32 as well. One output of one row
// is summed over the blocks in order, and so depends on nothing else:
//
//   dot = sum of code * activation code - zero * sum of activation codes,
//         exactly, in integers
//   sum = fma(float(dot) * activation scale, scale, sum), then with a minimum
//   sum = fma(minimum, activation scaled_sum, sum)
//
// "fma" is a rounded product and a rounded sum where the instruction set has
// none.
//
// Threads:  pure, any thread. No allocation, no failure.
#ifndef EVERWARM_KERNELS_LINEAR_H_
#define EVERWARM_KERNELS_LINEAR_H_

#include <cstddef>
#include <cstdint>

namespace everwarm::kernels {

// Named as in GGUF files.
enum class WeightType { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0 };

// Weights, and activations, that share a scale.
inline constexpr uint32_t kLinearBlock = 32;
inline constexpr uint32_t kPanelOutputs = 32;

struct MatrixShape {
  WeightType type = WeightType::kQ4_1;
  uint32_t inputs = 0;  // a multiple of kLinearBlock
  uint32_t outputs = 0;

  uint32_t NumBlocks() const { return inputs / kLinearBlock; }
  uint32_t NumPanels() const {
    return (outputs + kPanelOutputs - 1) / kPanelOutputs;
  }
};

// Whether MultiplyPanels() has instructions here that make it worth its layout.
bool LinearIsFast();

// Bytes of one panel, and of a matrix in panels, which begins on 64 bytes.
size_t PanelBytes(const MatrixShape& shape);
size_t PackedBytes(const MatrixShape& shape);

// Makes panels of a matrix that lies as in a GGUF file, row by row; outputs
// that do not fill the last panel become zeros.
void PackMatrix(const MatrixShape& shape, const std::byte* rows,
                std::byte* packed);

// 32 activations: code * scale.
struct ActivationBlock {
  int8_t codes[kLinearBlock];  // from -127 to 127
  float scale;                 // the largest magnitude over 127
  float scaled_sum;            // scale * sum of codes
  int32_t sum;                 // of codes
};

// Shapes: x [inputs], blocks [inputs / kLinearBlock].
void QuantiseRow(const float* x, uint32_t inputs, ActivationBlock* blocks);

struct LinearArgs {
  MatrixShape shape;
  const std::byte* packed = nullptr;
  const ActivationBlock* x = nullptr;  // [rows, inputs / kLinearBlock]
  uint32_t rows = 0;
  float* out = nullptr;  // [rows, out_stride]
  size_t out_stride = 0;
};

// Outputs of panels [first, last) for all rows.
void MultiplyPanels(const LinearArgs& args, uint32_t first, uint32_t last);

// The scalar twin, from rows as in a GGUF file. `fused`: whether the
// instruction set that is compared with has an fma.
void LinearReference(const MatrixShape& shape, const std::byte* rows,
                     const ActivationBlock* x, bool fused, float* out);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_LINEAR_H_
