#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/kv_planes.h"
#include "kernels/numerics.h"
#include "kernels/rotation.h"

namespace everwarm::kernels {
namespace {

// Token `pos` of one head of one plane, turned back if it is rotated.
std::vector<float> Token(const AttentionRow& row, const CodedPlane& plane,
                         uint32_t rotation, uint32_t kv_head, TokenPos pos) {
  const CodedHead head =
      plane.At(row.blocks[pos / plane.block_tokens], kv_head, pos);
  std::vector<float> numbers(plane.dim);
  DecodeHead(plane.codec, head.indices, head.params, plane.dim, numbers.data());
  if (rotation != 0) {
    UnrotateHeadReference(numbers.data(), plane.dim, rotation);
  }
  return numbers;
}

double Score(const AttentionShape& shape, const float* q,
             const std::vector<float>& key) {
  double dot = 0.0;
  for (uint32_t i = 0; i < shape.k_dim; ++i) {
    dot += double{q[i]} * double{key[i]};
  }
  dot *= double{shape.scale};
  if (shape.softcap == 0.0f) return dot;
  return double{shape.softcap} * std::tanh(dot / double{shape.softcap});
}

// One query head; `sink` null: it has none.
struct QueryHead {
  uint32_t kv_head;
  const float* q;
  const float* sink;
};

void ReferenceHead(const AttentionShape& shape, const LayerOffsets& offsets,
                   const AttentionRow& row, const QueryHead& head, float* out) {
  const TokenPos first = FirstVisible(shape, row.position);
  std::vector<double> scores;
  double max = -std::numeric_limits<double>::infinity();
  for (TokenPos pos = first; pos <= row.position; ++pos) {
    const CodedPlane keys = PlanesAt(shape, offsets, pos).k;
    scores.push_back(Score(
        shape, head.q, Token(row, keys, shape.k_rotation, head.kv_head, pos)));
    max = std::max(max, scores.back());
  }
  double sum = 0.0;
  if (head.sink != nullptr) {
    max = std::max(max, double{*head.sink});
    sum = std::exp(double{*head.sink} - max);
  }
  std::vector<double> value(shape.v_dim, 0.0);
  for (size_t t = 0; t < scores.size(); ++t) {
    const double weight = std::exp(scores[t] - max);
    const TokenPos pos = first + static_cast<TokenPos>(t);
    const CodedPlane values = PlanesAt(shape, offsets, pos).v;
    const std::vector<float> v =
        Token(row, values, shape.v_rotation, head.kv_head, pos);
    sum += weight;
    for (uint32_t i = 0; i < shape.v_dim; ++i) {
      value[i] += weight * double{v[i]};
    }
  }
  for (uint32_t i = 0; i < shape.v_dim; ++i) {
    out[i] = static_cast<float>(value[i] / sum);
  }
}

}  // namespace

void AttentionReference(const AttentionShape& shape,
                        const LayerOffsets& offsets,
                        absl::Span<const AttentionRow> rows,
                        const AttentionQueries& queries, float* out) {
  const uint32_t ratio = shape.num_heads / shape.num_kv_heads;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (uint32_t h = 0; h < shape.num_heads; ++h) {
      const size_t head = r * shape.num_heads + h;
      ReferenceHead(shape, offsets, rows[r],
                    {h / ratio, queries.q + head * shape.k_dim,
                     queries.sinks == nullptr ? nullptr : queries.sinks + h},
                    out + head * shape.v_dim);
    }
  }
}

}  // namespace everwarm::kernels
