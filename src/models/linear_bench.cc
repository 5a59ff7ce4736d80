// Our products with quantised weights beside ggml's, one thread: activations
// in, outputs out. Matrices take turns, so that weights come from memory as in
// a model.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "kernels/linear.h"

namespace everwarm::models {
namespace {

constexpr size_t kWorkingSet = size_t{64} << 20;

struct Type {
  ggml_type ggml;
  kernels::WeightType ours;
};
constexpr Type kTypes[] = {
    {GGML_TYPE_Q4_1, kernels::WeightType::kQ4_1},
    {GGML_TYPE_Q8_0, kernels::WeightType::kQ8_0},
    {GGML_TYPE_Q5_0, kernels::WeightType::kQ5_0},
    {GGML_TYPE_Q4_0, kernels::WeightType::kQ4_0},
};

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> floats(count);
  for (float& f : floats) f = normal(random);
  return floats;
}

// Arguments: type, inputs, outputs, rows.
struct Problem {
  explicit Problem(const benchmark::State& state)
      : type(kTypes[state.range(0)]),
        inputs(state.range(1)),
        outputs(state.range(2)),
        rows(state.range(3)),
        x(RandomFloats(inputs * rows)) {
    const std::vector<float> numbers = RandomFloats(inputs * outputs);
    weights.resize(ggml_row_size(type.ggml, inputs) * outputs);
    ggml_quantize_chunk(type.ggml, numbers.data(), weights.data(), 0, outputs,
                        inputs, nullptr);
    copies = std::max<size_t>(1, kWorkingSet / weights.size());
  }
  Type type;
  int64_t inputs;
  int64_t outputs;
  int64_t rows;
  std::vector<float> x;
  std::vector<std::byte> weights;
  size_t copies;
};

void Count(benchmark::State& state, const Problem& problem) {
  state.SetBytesProcessed(state.iterations() * problem.weights.size());
  state.counters["GMAC/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * problem.inputs *
                          problem.outputs * problem.rows) *
          1e-9,
      benchmark::Counter::kIsRate);
}

void BM_Ours(benchmark::State& state) {
  const Problem problem(state);
  const kernels::MatrixShape shape = {problem.type.ours,
                                      static_cast<uint32_t>(problem.inputs),
                                      static_cast<uint32_t>(problem.outputs)};
  const size_t bytes = kernels::PackedBytes(shape);
  std::unique_ptr<std::byte, decltype(&std::free)> packed(
      static_cast<std::byte*>(std::aligned_alloc(64, bytes * problem.copies)),
      &std::free);
  for (size_t i = 0; i < problem.copies; ++i) {
    kernels::PackMatrix(shape, problem.weights.data(),
                        packed.get() + i * bytes);
  }
  std::vector<kernels::ActivationBlock> x(problem.rows * shape.NumBlocks());
  std::vector<float> out(problem.outputs * problem.rows);
  size_t i = 0;
  for (auto _ : state) {
    for (int64_t r = 0; r < problem.rows; ++r) {
      kernels::QuantiseRow(problem.x.data() + r * problem.inputs, shape.inputs,
                           x.data() + r * shape.NumBlocks());
    }
    kernels::MultiplyPanels(
        {shape, packed.get() + i * bytes, x.data(),
         static_cast<uint32_t>(problem.rows), out.data(), shape.outputs},
        0, shape.NumPanels());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
    i = (i + 1) % problem.copies;
  }
  Count(state, problem);
}

void BM_Ggml(benchmark::State& state) {
  const Problem problem(state);
  const ggml_context_ptr context(
      ggml_init({problem.copies * (problem.weights.size() + 512) +
                     (problem.x.size() + problem.outputs * problem.rows) * 8 +
                     (size_t{8} << 20) + problem.copies * ggml_graph_overhead(),
                 nullptr, false}));
  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32,
                                      problem.inputs, problem.rows);
  std::memcpy(x->data, problem.x.data(), ggml_nbytes(x));
  ggml_tensor* out = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32,
                                        problem.outputs, problem.rows);
  std::vector<ggml_cgraph*> graphs;
  for (size_t i = 0; i < problem.copies; ++i) {
    ggml_tensor* weights = ggml_new_tensor_2d(context.get(), problem.type.ggml,
                                              problem.inputs, problem.outputs);
    std::memcpy(weights->data, problem.weights.data(), ggml_nbytes(weights));
    graphs.push_back(ggml_new_graph_custom(context.get(), 8, false));
    ggml_set_no_alloc(context.get(), true);
    ggml_tensor* product = ggml_mul_mat(context.get(), weights, x);
    ggml_set_no_alloc(context.get(), false);
    product->data = out->data;
    ggml_build_forward_expand(graphs.back(), product);
  }
  ggml_cplan plan = ggml_graph_plan(graphs[0], 1, nullptr);
  std::vector<uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  size_t i = 0;
  for (auto _ : state) {
    ggml_graph_compute(graphs[i], &plan);
    i = (i + 1) % problem.copies;
  }
  Count(state, problem);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  const int64_t layers[][2] = {
      {576, 192}, {576, 576}, {576, 1536}, {1536, 576}};
  for (int64_t type = 0; type < std::ssize(kTypes); ++type) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
      for (const auto& [inputs, outputs] : layers) {
        bench->Args({type, inputs, outputs, rows});
      }
    }
  }
  for (const int64_t rows : {1, 2, 4, 8}) {
    bench->Args({1, 576, 49152, rows});
  }
  bench->ArgNames({"type", "in", "out", "rows"})->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_Ours)->Apply(Shapes);
BENCHMARK(BM_Ggml)->Apply(Shapes);

}  // namespace
}  // namespace everwarm::models

BENCHMARK_MAIN();
