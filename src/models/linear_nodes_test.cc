#include "models/linear_nodes.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "gtest/gtest.h"

namespace everwarm::models {
namespace {

struct Type {
  ggml_type ggml;
  kernels::WeightType ours;
};
constexpr Type kTypes[] = {
    {GGML_TYPE_Q4_0, kernels::WeightType::kQ4_0},
    {GGML_TYPE_Q4_1, kernels::WeightType::kQ4_1},
    {GGML_TYPE_Q5_0, kernels::WeightType::kQ5_0},
    {GGML_TYPE_Q5_1, kernels::WeightType::kQ5_1},
    {GGML_TYPE_Q8_0, kernels::WeightType::kQ8_0},
};

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(count);
  for (float& f : floats) f = normal(random);
  return floats;
}

// A matrix as in a file, and in panels.
class Matrix {
 public:
  Matrix(const Type& type, uint32_t inputs, uint32_t outputs) : type_(type) {
    const std::vector<float> numbers =
        RandomFloats(size_t{inputs} * outputs, outputs);
    rows_.resize(ggml_row_size(type.ggml, inputs) * outputs);
    ggml_quantize_chunk(type.ggml, numbers.data(), rows_.data(), 0, outputs,
                        inputs, nullptr);
    packed_.shape = {type.ours, inputs, outputs};
    panels_.reset(static_cast<std::byte*>(
        std::aligned_alloc(64, kernels::PackedBytes(packed_.shape))));
    kernels::PackMatrix(packed_.shape, rows_.data(), panels_.get());
    packed_.panels = panels_.get();
  }
  const PackedMatrix& packed() const { return packed_; }

  // The product with one row, in double precision.
  std::vector<double> Exact(const float* x) const {
    const uint32_t inputs = packed_.shape.inputs;
    std::vector<float> weights(size_t{inputs} * packed_.shape.outputs);
    ggml_get_type_traits(type_.ggml)
        ->to_float(rows_.data(), weights.data(),
                   static_cast<int64_t>(weights.size()));
    std::vector<double> out(packed_.shape.outputs, 0.0);
    for (size_t o = 0; o < out.size(); ++o) {
      for (size_t i = 0; i < inputs; ++i) {
        out[o] += double{weights[o * inputs + i]} * x[i];
      }
    }
    return out;
  }
  ggml_tensor* Tensor(ggml_context* context) {
    ggml_tensor* tensor = ggml_new_tensor_2d(
        context, type_.ggml, packed_.shape.inputs, packed_.shape.outputs);
    tensor->data = rows_.data();
    return tensor;
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  const Type type_;
  std::vector<std::byte> rows_;
  PackedMatrix packed_;
  std::unique_ptr<std::byte, Free> panels_;
};

// A graph over one input.
class Graph {
 public:
  Graph(std::vector<float> x, uint32_t inputs)
      : context_(ggml_init({size_t{1} << 20, nullptr, true})),
        graph_(ggml_new_graph(context_.get())),
        numbers_(std::move(x)) {
    x_ = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, inputs,
                            static_cast<int64_t>(numbers_.size()) / inputs);
    x_->data = numbers_.data();
  }
  ggml_context* context() { return context_.get(); }
  ggml_tensor* x() { return x_; }
  ggml_cgraph* graph() { return graph_; }

  // All products, one behind the other.
  std::vector<float> Compute(const std::vector<ggml_tensor*>& products,
                             int threads) {
    for (ggml_tensor* product : products) {
      ggml_set_output(product);
      ggml_build_forward_expand(graph_, product);
    }
    const ggml_gallocr_ptr allocator(
        ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    EXPECT_TRUE(ggml_gallocr_alloc_graph(allocator.get(), graph_));
    ggml_cplan plan = ggml_graph_plan(graph_, threads, nullptr);
    std::vector<uint8_t> work(plan.work_size);
    plan.work_data = work.data();
    EXPECT_EQ(ggml_graph_compute(graph_, &plan), GGML_STATUS_SUCCESS);
    std::vector<float> all;
    for (const ggml_tensor* product : products) {
      const auto* data = static_cast<const float*>(product->data);
      all.insert(all.end(), data, data + ggml_nelements(product));
    }
    return all;
  }

 private:
  const ggml_context_ptr context_;
  ggml_cgraph* const graph_;
  std::vector<float> numbers_;
  ggml_tensor* x_;
};

TEST(LinearNodesTest, ProductsAreAsNearToTheExactOnesAsGgmls) {
  constexpr uint32_t kInputs = 256;
  constexpr uint32_t kOutputs = 70;
  constexpr size_t kRows = 9;
  const std::vector<float> x = RandomFloats(kRows * kInputs, 3);
  for (const Type& type : kTypes) {
    Matrix matrix(type, kInputs, kOutputs);
    Graph ours_graph(x, kInputs);
    LinearNodes nodes;
    const std::vector<float> ours = ours_graph.Compute(
        {nodes.Add(ours_graph.context(), matrix.packed(), ours_graph.x())}, 2);
    Graph ggml_graph(x, kInputs);
    const std::vector<float> theirs = ggml_graph.Compute(
        {ggml_mul_mat(ggml_graph.context(), matrix.Tensor(ggml_graph.context()),
                      ggml_graph.x())},
        2);
    ASSERT_EQ(ours.size(), kRows * kOutputs);
    ASSERT_EQ(ours.size(), theirs.size());
    double our_error = 0.0;
    double their_error = 0.0;
    for (size_t r = 0; r < kRows; ++r) {
      const std::vector<double> exact = matrix.Exact(x.data() + r * kInputs);
      for (size_t o = 0; o < kOutputs; ++o) {
        const size_t i = r * kOutputs + o;
        our_error += std::pow(ours[i] - exact[o], 2);
        their_error += std::pow(theirs[i] - exact[o], 2);
      }
    }
    EXPECT_GT(our_error, 0.0);
    EXPECT_LT(our_error, 1.02 * their_error) << ggml_type_name(type.ggml);
  }
}

TEST(LinearNodesTest, RowsThreadsAndCompanyDoNotChangeABit) {
  constexpr uint32_t kInputs = 96;
  constexpr size_t kRows = 23;
  const std::vector<float> x = RandomFloats(kRows * kInputs, 4);
  Matrix matrix(kTypes[1], kInputs, 50);
  Matrix other(kTypes[4], kInputs, 33);
  std::vector<float> expected;
  for (const size_t chunk : {kRows, size_t{1}, size_t{4}, size_t{5}}) {
    for (const int threads : {1, 2, 5}) {
      std::vector<float> all;
      for (size_t start = 0; start < kRows; start += chunk) {
        const size_t end = std::min(kRows, start + chunk);
        Graph graph({x.begin() + start * kInputs, x.begin() + end * kInputs},
                    kInputs);
        LinearNodes nodes;
        if (threads == 2) {
          nodes.Add(graph.context(), other.packed(), graph.x());
        }
        const std::vector<float> part = graph.Compute(
            {nodes.Add(graph.context(), matrix.packed(), graph.x())}, threads);
        all.insert(all.end(), part.begin(), part.end());
      }
      if (expected.empty()) expected = all;
      EXPECT_TRUE(all == expected)
          << chunk << " rows, " << threads << " threads";
    }
  }
}

TEST(LinearNodesTest, AnInputOfThreeDimensionsGivesWhatItsRowsGive) {
  constexpr uint32_t kInputs = 64;
  constexpr int64_t kRows = 12;
  const std::vector<float> x = RandomFloats(kRows * kInputs, 6);
  Matrix matrix(kTypes[1], kInputs, 40);
  Graph flat(x, kInputs);
  LinearNodes flat_nodes;
  const std::vector<float> expected = flat.Compute(
      {flat_nodes.Add(flat.context(), matrix.packed(), flat.x())}, 1);
  Graph deep(x, kInputs);
  LinearNodes deep_nodes;
  ggml_tensor* product = deep_nodes.Add(
      deep.context(), matrix.packed(),
      ggml_reshape_3d(deep.context(), deep.x(), kInputs, 3, kRows / 3));
  EXPECT_EQ(product->ne[0], 40);
  EXPECT_EQ(product->ne[1], 3);
  EXPECT_EQ(product->ne[2], kRows / 3);
  EXPECT_TRUE(deep.Compute({product}, 1) == expected);
}

TEST(LinearNodesTest, AnInputWithGapsGivesWhatItsRowsGive) {
  constexpr uint32_t kInputs = 64;
  for (const int64_t rows : {2, 12}) {
    const std::vector<float> wide = RandomFloats(2 * kInputs * rows, 7);
    std::vector<float> x;
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = wide.begin() + 2 * kInputs * r;
      x.insert(x.end(), row, row + kInputs);
    }
    Matrix matrix(kTypes[1], kInputs, 40);
    Graph dense(x, kInputs);
    LinearNodes dense_nodes;
    const std::vector<float> expected = dense.Compute(
        {dense_nodes.Add(dense.context(), matrix.packed(), dense.x())}, 1);
    Graph gaps(wide, 2 * kInputs);
    LinearNodes gaps_nodes;
    ggml_tensor* part = ggml_view_2d(gaps.context(), gaps.x(), kInputs, rows,
                                     2 * kInputs * sizeof(float), 0);
    EXPECT_TRUE(
        gaps.Compute({gaps_nodes.Add(gaps.context(), matrix.packed(), part)},
                     1) == expected);
  }
}

TEST(LinearNodesTest, ProductsOfOneInputAreOneNode) {
  for (const size_t rows : {1, 40}) {
    constexpr uint32_t kInputs = 64;
    Graph graph(RandomFloats(rows * kInputs, 5), kInputs);
    LinearNodes nodes;
    std::vector<std::unique_ptr<Matrix>> matrices;
    std::vector<ggml_tensor*> products;
    for (const uint32_t outputs : {40u, 8u, 64u}) {
      matrices.push_back(std::make_unique<Matrix>(kTypes[1], kInputs, outputs));
      products.push_back(
          nodes.Add(graph.context(), matrices.back()->packed(), graph.x()));
    }
    const std::vector<float> together = graph.Compute(products, 2);
    int computed = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph.graph()); ++i) {
      computed +=
          ggml_graph_node(graph.graph(), i)->op == GGML_OP_CUSTOM ? 1 : 0;
    }
    // Where there are many rows, making codes of them is another.
    EXPECT_EQ(computed, rows == 1 ? 1 : 2);
    std::vector<float> apart;
    for (const auto& matrix : matrices) {
      Graph own(RandomFloats(rows * kInputs, 5), kInputs);
      LinearNodes own_nodes;
      const std::vector<float> part = own.Compute(
          {own_nodes.Add(own.context(), matrix->packed(), own.x())}, 2);
      apart.insert(apart.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(together == apart);
  }
}

}  // namespace
}  // namespace everwarm::models
