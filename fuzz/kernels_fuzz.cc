// Kernels against their scalar twins, on any shapes, codes and numbers: what
// codes a head, attention over coded blocks, products with quantised weights.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "fuzz/fuzz.h"
// As in linear.cc, so that all of its targets are walked.
#define HWY_WANT_AVX3_DL 1
#include "hwy/targets.h"
#include "kernels/affine_group.h"
#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/linear.h"
#include "kernels/linear_layout.h"
#include "kernels/rotation.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

using everwarm::fuzz::Require;
using everwarm::testing::RandomFloats;

// Reads as many bytes as are asked for; zeros behind the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  uint32_t Among(uint32_t low, uint32_t high) {
    const uint32_t number = Byte() | Byte() << 8;
    return low + number % (high - low + 1);
  }
  bool Flag() { return Byte() % 2 != 0; }
  float Number() {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits = bits << 8 | Byte();
    return std::bit_cast<float>(bits);
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void TryAffineGroup(Input& input) {
  std::vector<float> x(input.Among(1, 80));
  const uint32_t bits = input.Among(1, 8);
  for (float& number : x) number = Storable(input.Number());
  const auto count = static_cast<uint32_t>(x.size());
  std::vector<uint8_t> got(count);
  std::vector<uint8_t> expected(count);
  Require(CodeAffineGroup(x.data(), count, bits, got.data()) ==
              CodeAffineGroupReference(x.data(), count, bits, expected.data()),
          "a group's line is not its twin's");
  Require(got == expected, "a group's indices are not their twin's");
  for (const uint8_t index : got) {
    Require(index < 1 << bits, "an index of too many bits");
  }
}

void TryRotation(Input& input) {
  const uint32_t part = 8u << input.Among(0, 7);
  const uint32_t dim = part * input.Among(1, 3);
  std::vector<float> got(dim);
  for (float& number : got) number = Storable(input.Number());
  std::vector<float> expected = got;
  RotateHead(got.data(), dim, part);
  RotateHeadReference(expected.data(), dim, part);
  Require(SameBits(got, expected), "a rotation is not its twin's");
  UnrotateHead(got.data(), dim, part);
  UnrotateHeadReference(expected.data(), dim, part);
  Require(SameBits(got, expected), "a rotation back is not its twin's");
}

AttentionShape AnyShape(Input& input) {
  AttentionShape shape;
  shape.num_kv_heads = input.Among(1, 2);
  shape.num_heads = shape.num_kv_heads * input.Among(1, 5);
  const uint32_t unit = input.Flag() ? 8 : 1;
  shape.k_dim = unit * input.Among(1, 130 / unit);
  shape.v_dim = unit * input.Among(1, 130 / unit);
  shape.v_in_k = input.Byte() % 4 == 0;
  if (shape.v_in_k) {
    shape.num_kv_heads = 1;
    shape.v_dim = std::min(shape.v_dim, shape.k_dim);
  }
  shape.scale = 1.0f / std::sqrt(static_cast<float>(shape.k_dim));
  shape.block_tokens = 16u << input.Among(0, 4);
  if (input.Flag()) shape.window = input.Among(1, 200);
  if (input.Flag()) shape.softcap = 10.0f;
  if (input.Flag()) everwarm::testing::Rotate(shape);
  const auto pairs = everwarm::testing::CodecPairs();
  const auto codecs = [&](PlaneCodec& k, PlaneCodec& v) {
    std::tie(k, v) = pairs[input.Byte() % pairs.size()];
    if (!shape.v_in_k) return;
    v = k;
  };
  codecs(shape.k_codec, shape.v_codec);
  if (input.Flag()) {
    shape.first.tokens =
        std::max(shape.block_tokens, kCodedTokens) * input.Among(1, 3);
    codecs(shape.first.k_codec, shape.first.v_codec);
  }
  return shape;
}

// Any bytes are indices.
void OverwriteIndices(Input& input, testing::KvSequence& sequence,
                      TokenPos length) {
  const AttentionShape& shape = sequence.shape();
  for (TokenPos pos = 0; pos < length; pos += input.Among(1, 9)) {
    const CodedPlanes planes = PlanesAt(shape, sequence.offsets(), pos);
    for (const CodedPlane& plane : {planes.k, planes.v}) {
      if (!plane.codec.packed()) continue;
      std::byte* slot = sequence.table()[pos / shape.block_tokens];
      std::byte* indices = plane.At(slot, 0, pos).indices;
      for (uint32_t i = 0; i < plane.codec.IndexBytes(plane.dim); ++i) {
        indices[i] = static_cast<std::byte>(input.Byte());
      }
    }
  }
}

void TryAttention(Input& input) {
  const AttentionShape shape = AnyShape(input);
  const TokenPos length = input.Among(1, 700);
  const uint32_t num_rows = std::min<uint32_t>(length, input.Among(1, 40));
  testing::KvSequence sequence(shape, length, length);
  OverwriteIndices(input, sequence, length);
  const auto rows = sequence.Rows(length - num_rows, length);
  const size_t q_row = size_t{shape.num_heads} * shape.k_dim;
  const auto q = RandomFloats(num_rows * q_row, input.Byte());
  const auto logits = RandomFloats(shape.num_heads, 8);
  const float* sinks = input.Flag() ? logits.data() : nullptr;
  const auto got = testing::Attend(shape, sequence.offsets(), rows, q.data(),
                                   input.Among(1, 3), sinks);
  std::vector<float> alone;
  for (uint32_t r = 0; r < num_rows; ++r) {
    const auto one = testing::Attend(shape, sequence.offsets(), {&rows[r], 1},
                                     q.data() + r * q_row, 1, sinks);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  Require(SameBits(got, alone), "a row feels the others of its step");
  std::vector<float> expected(got.size());
  AttentionReference(shape, sequence.offsets(), rows, {q.data(), sinks},
                     expected.data());
  for (size_t i = 0; i < got.size(); ++i) {
    // Sums of at most some hundred numbers of about 1, in floats.
    Require(std::abs(got[i] - expected[i]) <= 1e-3f,
            "attention is not its twin's");
  }
}

struct AlignedFree {
  void operator()(std::byte* p) const {
    ::operator delete (p, std::align_val_t{64});
  }
};

// Files' blocks of any codes; scales and minima are kept finite and small.
std::vector<std::byte> AnyWeights(Input& input, const MatrixShape& shape) {
  const WeightFormat format = FormatOf(shape.type);
  std::vector<std::byte> rows(size_t{shape.outputs} * shape.NumBlocks() *
                              format.FileBlockBytes());
  for (std::byte& byte : rows) byte = static_cast<std::byte>(input.Byte());
  for (size_t at = 0; at < rows.size(); at += format.FileBlockBytes()) {
    for (size_t i = 0; i < format.NumParams(); ++i) {
      // Halves below 2.
      rows[at + 2 * i + 1] &= std::byte{0xBF};
    }
  }
  return rows;
}

void TryLinear(Input& input, bool fused) {
  constexpr WeightType kTypes[] = {WeightType::kQ4_0, WeightType::kQ4_1,
                                   WeightType::kQ5_0, WeightType::kQ5_1,
                                   WeightType::kQ8_0};
  const MatrixShape shape = {kTypes[input.Byte() % 5],
                             kLinearBlock * input.Among(1, 4),
                             input.Among(1, 70)};
  const std::vector<std::byte> weights = AnyWeights(input, shape);
  const std::unique_ptr<std::byte, AlignedFree> packed(static_cast<std::byte*>(
      ::operator new (PackedBytes(shape), std::align_val_t{64})));
  PackMatrix(shape, weights.data(), packed.get());
  const uint32_t num_rows = input.Among(1, 9);
  std::vector<ActivationBlock> x(size_t{num_rows} * shape.NumBlocks());
  std::vector<float> row(shape.inputs);
  for (uint32_t r = 0; r < num_rows; ++r) {
    for (float& number : row) {
      number = static_cast<float>(input.Among(0, 2000)) / 1000.0f - 1.0f;
    }
    QuantiseRow(row.data(), shape.inputs,
                x.data() + size_t{r} * shape.NumBlocks());
  }
  std::vector<float> got(size_t{num_rows} * shape.outputs);
  MultiplyPanels(
      {shape, packed.get(), x.data(), num_rows, got.data(), shape.outputs}, 0,
      shape.NumPanels());
  std::vector<float> expected(got.size());
  for (uint32_t r = 0; r < num_rows; ++r) {
    LinearReference(shape, weights.data(),
                    x.data() + size_t{r} * shape.NumBlocks(), fused,
                    expected.data() + size_t{r} * shape.outputs);
  }
  Require(SameBits(got, expected), "a product is not its twin's");
}

}  // namespace
}  // namespace everwarm::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace kernels = everwarm::kernels;
  kernels::Input input(data, size);
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  const int64_t target = targets[input.Byte() % targets.size()];
  hwy::SetSupportedTargetsForTest(target);
  switch (input.Byte() % 4) {
    case 0:
      kernels::TryAffineGroup(input);
      break;
    case 1:
      kernels::TryRotation(input);
      break;
    case 2:
      kernels::TryAttention(input);
      break;
    default:
      kernels::TryLinear(input, target <= HWY_AVX2);
      break;
  }
  hwy::SetSupportedTargetsForTest(0);
  return 0;
}
