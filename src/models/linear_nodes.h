// Products with matrices in panels (kernels/linear.h) as nodes of a ggml graph.
//
// Products of the same activations become one node, however many matrices there
// are: its result holds theirs one behind the other, [matrix][rows, outputs],
// and each product is a view of it.
#ifndef EVERWARM_MODELS_LINEAR_NODES_H_
#define EVERWARM_MODELS_LINEAR_NODES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ggml.h"
#include "kernels/linear.h"

namespace everwarm::models {

struct PackedMatrix {
  kernels::MatrixShape shape;
  const std::byte* panels = nullptr;
};

// A tensor without data of its own stands for a matrix in panels in a graph;
// the matrix must outlive it.
void MarkPacked(ggml_tensor* tensor, const PackedMatrix* matrix);
// Null unless it was marked.
const PackedMatrix* PackedOf(const ggml_tensor* tensor);

// What the product nodes of one graph point to; lives as long as the graph.
//
// Threads: Add() from one, before the graph gets its memory.
class LinearNodes {
 public:
  // x times `matrix`.
  // Shapes: x [..., inputs] f32; result [..., outputs].
  ggml_tensor* Add(ggml_context* context, const PackedMatrix& matrix,
                   ggml_tensor* x);

  struct Product {
    PackedMatrix matrix;
    size_t offset = 0;  // of its outputs in the node's result
  };
  // One node.
  struct Node {
    ggml_tensor* result = nullptr;
    uint32_t rows = 0;
    uint32_t num_blocks = 0;  // of a row of activations
    uint32_t num_panels = 0;  // of all matrices
    std::vector<Product> products;
  };

 private:
  std::deque<Node> nodes_;
  absl::flat_hash_map<const ggml_tensor*, Node*> by_input_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_LINEAR_NODES_H_
