// Decode against memory speed, prefill against the multipliers.
//
// Decode walks 30 layers of KV, as a model does, so that nothing but the cache
// of a short context stays in the caches. "read" is what plain loads over the
// same bytes reach on as many threads.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "base/executor.h"
#include "benchmark/benchmark.h"
#include "kernels/attention.h"
#include "kernels/f16.h"
#include "testing/attention_fixture.h"

namespace everwarm::kernels {
namespace {

// Threads that all run one function, with spinning barriers around it, as a
// model's pool does.
class Team {
 public:
  explicit Team(uint32_t size) : size_(size) {
    for (uint32_t t = 1; t < size; ++t) {
      threads_.emplace_back([this, t] { Loop(t); });
    }
  }
  ~Team() {
    work_ = nullptr;
    round_.fetch_add(1);
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(const std::function<void(uint32_t)>& work) {
    work_ = &work;
    done_.store(0);
    round_.fetch_add(1);
    work(0);
    while (done_.load() != size_ - 1) {
    }
  }

 private:
  void Loop(uint32_t t) {
    for (uint64_t seen = 0;;) {
      while (round_.load() == seen) {
      }
      ++seen;
      if (work_ == nullptr) return;
      (*work_)(t);
      done_.fetch_add(1);
    }
  }

  const uint32_t size_;
  const std::function<void(uint32_t)>* work_ = nullptr;
  std::atomic<uint64_t> round_{0};
  std::atomic<uint32_t> done_{0};
  std::vector<std::thread> threads_;
};

struct ModelShape {
  AttentionShape shape;
  uint32_t layers;
};

// 0: SmolLM2 135M; 1: Gemma 3 270M, full layers; 2: the same, window layers.
ModelShape Model(int64_t which) {
  AttentionShape shape;
  if (which == 0 || which == 3) {
    shape.num_heads = 9;
    shape.num_kv_heads = 3;
    shape.k_dim = shape.v_dim = 64;
    shape.scale = 1.0f / 8;
    return {shape, which == 3 ? 1u : 30u};
  }
  shape.num_heads = 4;
  shape.num_kv_heads = 1;
  shape.k_dim = shape.v_dim = 256;
  shape.scale = 1.0f / 16;
  shape.window = which == 2 ? 512 : 0;
  return {shape, which == 2 ? 15u : 3u};
}

class Kv {
 public:
  Kv(const ModelShape& model, TokenPos tokens)
      : shape_(model.shape),
        geometry_(KvGeometry(model.shape, model.layers).rest) {
    const uint32_t blocks =
        (tokens + model.shape.block_tokens - 1) / model.shape.block_tokens;
    bytes_ = blocks * geometry_.slot_bytes();
    // Huge pages where the system gives them, as in the block pool.
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t mapped = AlignUp(bytes_, kHugePage);
    memory_.reset(static_cast<std::byte*>(
        ::operator new (mapped, std::align_val_t{kHugePage})));
    std::byte* base = memory_.get();
    madvise(base, mapped, MADV_HUGEPAGE);
    std::vector<uint16_t> values;
    for (float v : testing::RandomFloats(8192, 1)) {
      values.push_back(F32ToF16(v));
    }
    const size_t pattern = values.size() * 2 - 64;
    for (size_t i = 0; i < bytes_; i += pattern) {
      std::memcpy(base + i, values.data(), std::min(pattern, bytes_ - i));
    }
    for (uint32_t b = 0; b < blocks; ++b) {
      table_.push_back(base + b * geometry_.slot_bytes());
    }
    std::shuffle(table_.begin(), table_.end(), std::mt19937(2));
  }
  LayerOffsets Offsets(uint32_t layer) const {
    return KvOffsets(shape_, geometry_, layer);
  }
  const std::vector<std::byte*>& table() const { return table_; }
  const BlockGeometry& geometry() const { return geometry_; }

 private:
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete (p, std::align_val_t{size_t{2} << 20});
    }
  };
  AttentionShape shape_;
  BlockGeometry geometry_;
  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte*> table_;
};

// Tokens that a row at `position` sees.
uint64_t Seen(const AttentionShape& shape, TokenPos position) {
  const uint64_t all = uint64_t{position} + 1;
  return shape.window == 0 ? all : std::min<uint64_t>(all, shape.window);
}

// Args: model, depth, threads, codec: 0 f16, 1 q8, 2 q4, 3 turbo.
void BM_Decode(benchmark::State& state) {
  ModelShape model = Model(state.range(0));
  std::tie(
      model.shape.k_codec,
      model.shape.v_codec) = std::vector<std::pair<PlaneCodec, PlaneCodec>>{
      {testing::kF16Codec, testing::kF16Codec},
      {testing::kQ8Codec, testing::kQ8Codec},
      {testing::kQ4Codec, testing::kQ4Codec},
      {{Coding::kAffine, 8, 32},
       {Coding::kNormal, 3, 32}}}.at(static_cast<size_t>(state.range(3)));
  // As the product has it.
  if (model.shape.k_codec.packed()) testing::Rotate(model.shape);
  const auto depth = static_cast<TokenPos>(state.range(1));
  const auto threads = static_cast<uint32_t>(state.range(2));
  Kv kv(model, depth);
  const AttentionRow row{kv.table().data(), depth - 1};
  const auto q = testing::RandomFloats(model.shape.num_heads * 512, 1);
  std::vector<float> out(model.shape.num_heads * 512);
  AttentionPlan plan;
  Team team(threads);
  for (auto _ : state) {
    plan.Prepare(model.shape, {&row, 1}, threads);
    for (uint32_t layer = 0; layer < model.layers; ++layer) {
      plan.BeginLayer();
      team.Run([&](uint32_t t) {
        plan.Run(kv.Offsets(layer), {q.data()}, out.data(), t);
      });
    }
    benchmark::DoNotOptimize(out.data());
  }
  state.SetBytesProcessed(
      static_cast<int64_t>(state.iterations() * Seen(model.shape, depth - 1) *
                           kv.geometry().token_bytes()));
}

uint64_t SumBytes(const std::byte* from, size_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= bytes / 8; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

// The same bytes, read in address order by plain loads.
void BM_Read(benchmark::State& state) {
  const ModelShape model = Model(state.range(0));
  const auto depth = static_cast<TokenPos>(state.range(1));
  const auto threads = static_cast<uint32_t>(state.range(2));
  Kv kv(model, depth);
  const size_t bytes = kv.geometry().PayloadBytes(model.shape.block_tokens);
  Team team(threads);
  for (auto _ : state) {
    team.Run([&](uint32_t t) {
      uint64_t sum = 0;
      for (size_t b = t; b < kv.table().size(); b += threads) {
        sum += SumBytes(kv.table()[b], bytes);
      }
      benchmark::DoNotOptimize(sum);
    });
  }
  state.SetBytesProcessed(
      static_cast<int64_t>(state.iterations() * kv.table().size() * bytes));
}

// The same bytes in the order in which decode reads them: layer by layer, one
// row of a KV head and block after the other.
void BM_ReadRows(benchmark::State& state) {
  const ModelShape model = Model(state.range(0));
  const auto depth = static_cast<TokenPos>(state.range(1));
  const auto threads = static_cast<uint32_t>(state.range(2));
  Kv kv(model, depth);
  const uint32_t heads = model.shape.num_kv_heads;
  const size_t row = kv.geometry().HeadStride(0);
  const size_t items = kv.table().size() * heads;
  Team team(threads);
  for (auto _ : state) {
    for (uint32_t layer = 0; layer < model.layers; ++layer) {
      const LayerOffsets offsets = kv.Offsets(layer);
      team.Run([&](uint32_t t) {
        uint64_t sum = 0;
        for (size_t i = items * t / threads; i < items * (t + 1) / threads;
             ++i) {
          const size_t head = i / kv.table().size();
          const std::byte* slot = kv.table()[i % kv.table().size()];
          sum += SumBytes(slot + offsets.rest.k + head * row, row);
          sum += SumBytes(slot + offsets.rest.v + head * row, row);
        }
        benchmark::DoNotOptimize(sum);
      });
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(
      state.iterations() * kv.table().size() *
      kv.geometry().PayloadBytes(model.shape.block_tokens)));
}

// 512 rows behind `depth` tokens, one layer. Args: model, depth, threads.
void BM_Prefill(benchmark::State& state) {
  constexpr uint32_t kRows = 512;
  ModelShape model = Model(state.range(0));
  model.layers = 1;
  const auto depth = static_cast<TokenPos>(state.range(1));
  const auto threads = static_cast<uint32_t>(state.range(2));
  Kv kv(model, depth + kRows);
  std::vector<AttentionRow> rows;
  double flops = 0.0;
  for (uint32_t r = 0; r < kRows; ++r) {
    rows.push_back({kv.table().data(), depth + r});
    flops += 2.0 * static_cast<double>(Seen(model.shape, depth + r)) *
             model.shape.num_heads * (model.shape.k_dim + model.shape.v_dim);
  }
  const size_t floats = size_t{kRows} * model.shape.num_heads;
  const auto q = testing::RandomFloats(floats * model.shape.k_dim, 1);
  std::vector<float> out(floats * model.shape.v_dim);
  AttentionPlan plan;
  Team team(threads);
  for (auto _ : state) {
    plan.Prepare(model.shape, rows, threads);
    team.Run([&](uint32_t t) {
      plan.Run(kv.Offsets(0), {q.data()}, out.data(), t);
    });
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["FLOPS"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void DecodeArgs(benchmark::internal::Benchmark* bench) {
  for (int model : {0, 1, 2, 3}) {
    for (int depth : {128, 2048, 6144}) {
      for (int threads : {1, 2}) bench->Args({model, depth, threads});
    }
  }
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void CodecArgs(benchmark::internal::Benchmark* bench) {
  for (int model : {0, 1, 2, 3}) {
    for (int depth : {128, 2048, 6144}) {
      for (int threads : {1, 2}) {
        for (int codec : {0, 1, 2, 3}) {
          bench->Args({model, depth, threads, codec});
        }
      }
    }
  }
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void PrefillArgs(benchmark::internal::Benchmark* bench) {
  for (int model : {0, 1, 2, 3}) {
    for (int depth : {0, 6144}) {
      for (int threads : {1, 2}) bench->Args({model, depth, threads});
    }
  }
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_Read)->Apply(DecodeArgs);
BENCHMARK(BM_ReadRows)->Apply(DecodeArgs);
BENCHMARK(BM_Decode)->Apply(CodecArgs);
BENCHMARK(BM_Prefill)->Apply(PrefillArgs);

}  // namespace
}  // namespace everwarm::kernels

BENCHMARK_MAIN();
