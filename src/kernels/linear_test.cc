#include "kernels/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
// As in linear.cc, so that all of its targets are walked.
#define HWY_WANT_AVX3_DL 1
#include "hwy/targets.h"
#include "kernels/f16.h"
#include "kernels/linear_layout.h"

namespace everwarm::kernels {
namespace {

constexpr WeightType kTypes[] = {WeightType::kQ4_0, WeightType::kQ4_1,
                                 WeightType::kQ5_0, WeightType::kQ5_1,
                                 WeightType::kQ8_0};

std::string Name(const MatrixShape& shape, size_t rows) {
  return "type " + std::to_string(static_cast<int>(shape.type)) + ", " +
         std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs) +
         ", " + std::to_string(rows) + " rows";
}

// Calls test() on every target that this machine runs.
template <class Test>
void ForEachTarget(Test test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    test(target <= HWY_AVX2);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Any bytes are codes; scales and minima are made finite and small.
std::vector<std::byte> RandomRows(const MatrixShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  const WeightFormat format = FormatOf(shape.type);
  std::vector<std::byte> rows(size_t{shape.outputs} * shape.NumBlocks() *
                              format.FileBlockBytes());
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> scale(-0.1f, 0.1f);
  for (size_t at = 0; at < rows.size(); at += format.FileBlockBytes()) {
    for (size_t i = 0; i < format.NumParams(); ++i) {
      const uint16_t half = F32ToF16(scale(random));
      std::memcpy(rows.data() + at + 2 * i, &half, 2);
    }
  }
  return rows;
}

std::vector<ActivationBlock> RandomActivations(uint32_t inputs, uint32_t rows,
                                               uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(inputs);
  std::vector<ActivationBlock> blocks(size_t{rows} * inputs / kLinearBlock);
  for (uint32_t r = 0; r < rows; ++r) {
    for (float& number : x) number = normal(random);
    QuantiseRow(x.data(), inputs,
                blocks.data() + size_t{r} * inputs / kLinearBlock);
  }
  return blocks;
}

// A matrix in panels, on an address of its alignment.
class Panels {
 public:
  Panels(const MatrixShape& shape, const std::vector<std::byte>& rows)
      : buffer_(PackedBytes(shape) + 64) {
    void* at = buffer_.data();
    size_t space = buffer_.size();
    data_ =
        static_cast<std::byte*>(std::align(64, PackedBytes(shape), at, space));
    PackMatrix(shape, rows.data(), data_);
  }
  const std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> buffer_;
  std::byte* data_;
};

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Compares all outputs with the twin's, and looks at what lies beside them.
void ExpectTwin(const MatrixShape& shape, const std::vector<std::byte>& rows,
                const std::vector<ActivationBlock>& x, bool fused) {
  const Panels panels(shape, rows);
  const auto num_rows = static_cast<uint32_t>(x.size() / shape.NumBlocks());
  const size_t stride = shape.outputs + 3;
  constexpr float kPoison = 12345.0f;
  std::vector<float> out(num_rows * stride, kPoison);
  LinearArgs args = {shape,    panels.data(), x.data(),
                     num_rows, out.data(),    stride};
  // In two pieces, as two threads would.
  const uint32_t middle = shape.NumPanels() / 2;
  MultiplyPanels(args, middle, shape.NumPanels());
  MultiplyPanels(args, 0, middle);
  std::vector<float> expected(shape.outputs);
  for (uint32_t r = 0; r < num_rows; ++r) {
    LinearReference(shape, rows.data(),
                    x.data() + size_t{r} * shape.NumBlocks(), fused,
                    expected.data());
    for (uint32_t o = 0; o < shape.outputs; ++o) {
      ASSERT_TRUE(SameBits(out[r * stride + o], expected[o]))
          << Name(shape, num_rows) << ": row " << r << ", output " << o << ": "
          << out[r * stride + o] << " and " << expected[o];
    }
    for (size_t o = shape.outputs; o < stride; ++o) {
      ASSERT_EQ(out[r * stride + o], kPoison) << Name(shape, num_rows);
    }
  }
}

TEST(LinearTest, EveryTargetHasTheBitsOfTheTwinWhateverTheShape) {
  ForEachTarget([](bool fused) {
    for (const WeightType type : kTypes) {
      for (const uint32_t outputs : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 100u}) {
        for (const uint32_t inputs : {32u, 64u, 224u}) {
          const MatrixShape shape = {type, inputs, outputs};
          const auto rows = RandomRows(shape, outputs * inputs);
          for (const uint32_t count : {0u, 1u, 2u, 5u, 6u, 7u, 13u}) {
            const auto x = RandomActivations(inputs, count, inputs + count);
            ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape, rows, x, fused));
          }
        }
      }
    }
  });
}

TEST(LinearTest, TheLargestCodesDoNotSaturate) {
  ForEachTarget([](bool fused) {
    for (const WeightType type : kTypes) {
      const MatrixShape shape = {type, 64, 32};
      // Signed bytes of 0x80 are the smallest, of 0x7F the largest.
      for (const int fill : {0x00, 0xFF, 0x80, 0x7F}) {
        auto rows = RandomRows(shape, 1);
        const WeightFormat format = FormatOf(type);
        for (size_t at = 0; at < rows.size(); at += format.FileBlockBytes()) {
          const size_t params = 2 * format.NumParams();
          std::fill_n(rows.begin() + at + params,
                      format.FileBlockBytes() - params,
                      static_cast<std::byte>(fill));
        }
        for (const float sign : {-1.0f, 1.0f}) {
          const std::vector<float> ones(shape.inputs, sign);
          std::vector<ActivationBlock> x(shape.NumBlocks());
          QuantiseRow(ones.data(), shape.inputs, x.data());
          ASSERT_EQ(x[0].codes[5], 127 * sign);
          ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape, rows, x, fused));
        }
      }
    }
  });
}

TEST(LinearTest, PanelsHoldWhatTheFileHolds) {
  for (const WeightType type : kTypes) {
    const MatrixShape shape = {type, 96, 45};
    const WeightFormat format = FormatOf(type);
    const auto rows = RandomRows(shape, 7);
    const Panels panels(shape, rows);
    for (uint32_t o = 0; o < shape.outputs; ++o) {
      for (uint32_t b = 0; b < shape.NumBlocks(); ++b) {
        const FileBlock in_file =
            ReadBlock(format, rows.data() + (o * shape.NumBlocks() + b) *
                                                format.FileBlockBytes());
        const FileBlock in_panel = ReadPanelBlock(
            format,
            panels.data() + o / kPanelOutputs * PanelBytes(shape) +
                b * format.PanelBlockBytes(),
            o % kPanelOutputs);
        EXPECT_TRUE(std::equal(in_file.codes, in_file.codes + kLinearBlock,
                               in_panel.codes));
        EXPECT_TRUE(
            std::equal(in_file.params, in_file.params + 2, in_panel.params));
      }
    }
  }
}

TEST(LinearTest, ActivationsAreRoundedToTheNearestCode) {
  ForEachTarget([](bool) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const float size : {1e-30f, 1.0f, 1e30f}) {
      float x[kLinearBlock];
      for (float& number : x) number = normal(random) * size;
      x[7] = 0.0f;
      ActivationBlock block;
      QuantiseRow(x, kLinearBlock, &block);
      float largest = 0.0f;
      for (const float number : x)
        largest = std::max(largest, std::abs(number));
      EXPECT_TRUE(SameBits(block.scale, largest / 127.0f));
      int32_t sum = 0;
      for (uint32_t i = 0; i < kLinearBlock; ++i) {
        EXPECT_EQ(block.codes[i], std::nearbyint(x[i] * (127.0f / largest)));
        sum += block.codes[i];
      }
      EXPECT_EQ(block.sum, sum);
      EXPECT_TRUE(
          SameBits(block.scaled_sum, block.scale * static_cast<float>(sum)));
    }
  });
}

TEST(LinearTest, ZerosAndWhatIsNearlyZeroGiveZeros) {
  ForEachTarget([](bool) {
    for (const float number :
         {0.0f, -0.0f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
      const std::vector<float> x(kLinearBlock, number);
      ActivationBlock block;
      QuantiseRow(x.data(), kLinearBlock, &block);
      EXPECT_EQ(block.scale, 0.0f);
      EXPECT_EQ(block.scaled_sum, 0.0f);
      EXPECT_EQ(block.codes[0], 0);
    }
  });
}

TEST(LinearTest, ANumberThatIsNoneReachesEveryOutput) {
  ForEachTarget([](bool) {
    for (const float number : {std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()}) {
      const MatrixShape shape = {WeightType::kQ4_1, 64, 40};
      const Panels panels(shape, RandomRows(shape, 5));
      std::vector<float> x(shape.inputs, 1.0f);
      x[41] = number;
      std::vector<ActivationBlock> blocks(shape.NumBlocks());
      QuantiseRow(x.data(), shape.inputs, blocks.data());
      std::vector<float> out(shape.outputs);
      MultiplyPanels(
          {shape, panels.data(), blocks.data(), 1, out.data(), shape.outputs},
          0, shape.NumPanels());
      for (const float sum : out) EXPECT_TRUE(std::isnan(sum));
    }
  });
}

}  // namespace
}  // namespace everwarm::kernels
