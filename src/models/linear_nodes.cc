#include "models/linear_nodes.h"

#include <algorithm>

namespace everwarm::models {
namespace {

using kernels::ActivationBlock;

// Up to so many rows, each thread quantises all activations for itself: that
// takes less time than to wait for each other.
constexpr uint32_t kMostOwnRows = 4;
// Activations that then lie on a thread's stack: 44 KiB.
constexpr uint32_t kMostOwnBlocks = 1024;
// Activations that stay in a core's L2 cache while panels go by.
constexpr size_t kMostChunkBytes = size_t{384} << 10;

bool QuantisesItself(uint32_t rows, uint32_t num_blocks) {
  return rows <= kMostOwnRows && rows * num_blocks <= kMostOwnBlocks;
}

// The part of `count` things that is a thread's: [first, last).
struct Share {
  uint32_t first;
  uint32_t last;
};
Share ShareOf(uint32_t count, int thread, int num_threads) {
  const auto at = [&](int t) {
    return static_cast<uint32_t>(uint64_t{count} * t / num_threads);
  };
  return {at(thread), at(thread + 1)};
}

void Quantise(const ggml_tensor* x, Share rows, ActivationBlock* blocks) {
  const auto inputs = static_cast<uint32_t>(x->ne[0]);
  for (uint32_t row = rows.first; row < rows.last; ++row) {
    kernels::QuantiseRow(
        static_cast<const float*>(x->data) + size_t{row} * inputs, inputs,
        blocks + size_t{row} * inputs / kernels::kLinearBlock);
  }
}

void ComputeQuantise(ggml_tensor* result, int thread, int num_threads,
                     void* /*user_data*/) {
  const ggml_tensor* x = result->src[0];
  Quantise(x,
           ShareOf(static_cast<uint32_t>(ggml_nrows(x)), thread, num_threads),
           static_cast<ActivationBlock*>(result->data));
}

// Panels [share.first, share.last) of all matrices, counted through.
void Multiply(const LinearNodes::Node& node, Share share, uint32_t first_row,
              uint32_t rows, const ActivationBlock* x, float* result) {
  uint32_t before = 0;
  for (const LinearNodes::Product& product : node.products) {
    const kernels::MatrixShape& shape = product.matrix.shape;
    const uint32_t first = std::max(share.first, before) - before;
    const uint32_t last =
        std::min(std::max(share.last, before) - before, shape.NumPanels());
    before += shape.NumPanels();
    if (first >= last) continue;
    kernels::MultiplyPanels(
        {shape, product.matrix.panels, x + size_t{first_row} * node.num_blocks,
         rows, result + product.offset + size_t{first_row} * shape.outputs,
         shape.outputs},
        first, last);
  }
}

void ComputeProducts(ggml_tensor* result, int thread, int num_threads,
                     void* user_data) {
  const auto& node = *static_cast<const LinearNodes::Node*>(user_data);
  const ggml_tensor* x = result->src[0];
  ActivationBlock own[kMostOwnBlocks];
  const ActivationBlock* blocks = own;
  if (x->type == GGML_TYPE_F32) {
    Quantise(x, {0, node.rows}, own);
  } else {
    blocks = static_cast<const ActivationBlock*>(x->data);
  }
  const Share share = ShareOf(node.num_panels, thread, num_threads);
  const auto chunk = std::max<uint32_t>(
      1, kMostChunkBytes / (node.num_blocks * sizeof(ActivationBlock)));
  for (uint32_t row = 0; row < node.rows; row += chunk) {
    Multiply(node, share, row, std::min(chunk, node.rows - row), blocks,
             static_cast<float*>(result->data));
  }
}

// A vector that has its final size only when all products have been added.
void Resize(ggml_tensor* vector, size_t size) {
  vector->ne[0] = static_cast<int64_t>(size);
  for (int i = 1; i < GGML_MAX_DIMS; ++i) {
    vector->nb[i] = size * sizeof(float);
  }
}

}  // namespace

void MarkPacked(ggml_tensor* tensor, const PackedMatrix* matrix) {
  tensor->extra = const_cast<PackedMatrix*>(matrix);
}

const PackedMatrix* PackedOf(const ggml_tensor* tensor) {
  // Tensors of ggml's own buffers use `extra` for themselves.
  return tensor->buffer != nullptr || tensor->data != nullptr
             ? nullptr
             : static_cast<const PackedMatrix*>(tensor->extra);
}

ggml_tensor* LinearNodes::Add(ggml_context* context, const PackedMatrix& matrix,
                              ggml_tensor* x) {
  const kernels::MatrixShape& shape = matrix.shape;
  const auto [found, is_new] = by_input_.try_emplace(x, nullptr);
  if (is_new) {
    nodes_.push_back({.rows = static_cast<uint32_t>(ggml_nrows(x)),
                      .num_blocks = shape.NumBlocks()});
    Node& node = nodes_.back();
    found->second = &node;
    ggml_tensor* blocks = ggml_is_contiguous(x) ? x : ggml_cont(context, x);
    if (!QuantisesItself(node.rows, node.num_blocks)) {
      const size_t row_bytes = node.num_blocks * sizeof(ActivationBlock);
      blocks = ggml_custom_4d(
          context, GGML_TYPE_I8, static_cast<int64_t>(row_bytes), node.rows, 1,
          1, &blocks, 1, &ComputeQuantise, GGML_N_TASKS_MAX, nullptr);
    }
    node.result = ggml_custom_4d(context, GGML_TYPE_F32, 0, 1, 1, 1, &blocks, 1,
                                 &ComputeProducts, GGML_N_TASKS_MAX, &node);
  }
  Node& node = *found->second;
  const auto offset = static_cast<size_t>(node.result->ne[0]);
  node.products.push_back({matrix, offset});
  node.num_panels += shape.NumPanels();
  Resize(node.result, offset + size_t{node.rows} * shape.outputs);
  const size_t row_bytes = shape.outputs * sizeof(float);
  return ggml_view_4d(context, node.result, shape.outputs, x->ne[1], x->ne[2],
                      x->ne[3], row_bytes, row_bytes * x->ne[1],
                      row_bytes * x->ne[1] * x->ne[2], offset * sizeof(float));
}

}  // namespace everwarm::models
