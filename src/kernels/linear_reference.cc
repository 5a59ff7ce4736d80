#include <cmath>
#include <vector>

#include "kernels/f16.h"
#include "kernels/linear.h"
#include "kernels/linear_layout.h"

namespace everwarm::kernels {

void LinearReference(const MatrixShape& shape, const std::byte* rows,
                     const ActivationBlock* x, bool fused, float* out) {
  const WeightFormat format = FormatOf(shape.type);
  const auto multiply_add = [&](float a, float b, float c) {
    return fused ? std::fma(a, b, c) : a * b + c;
  };
  for (uint32_t o = 0; o < shape.outputs; ++o) {
    float sum = 0.0f;
    for (uint32_t b = 0; b < shape.NumBlocks(); ++b) {
      const FileBlock block = ReadBlock(format, rows);
      rows += format.FileBlockBytes();
      int32_t dot = 0;
      for (uint32_t i = 0; i < kLinearBlock; ++i) {
        dot += (block.codes[i] - format.zero) * x[b].codes[i];
      }
      sum = multiply_add(static_cast<float>(dot) * x[b].scale,
                         F16ToF32(block.params[0]), sum);
      if (format.has_minimum) {
        sum = multiply_add(F16ToF32(block.params[1]), x[b].scaled_sum, sum);
      }
    }
    out[o] = sum;
  }
}

}  // namespace everwarm::kernels
