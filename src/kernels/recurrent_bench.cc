// What a recurrent layer costs, on one thread, at the sizes of real models.
//
// Arguments: rows in the call (1: decode, more: a prompt). Time per layer and
// row is the mean over the rows. Decode walks kLayers states, so that a state
// comes from memory as it does in a model; "bytes" are a state's, read and
// written.
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/recurrent.h"

namespace everwarm::kernels {
namespace {

constexpr uint32_t kLayers = 16;

// Rows of inputs near 0.1, so that no state grows.
std::vector<float> Inputs(size_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0.0f, 0.2f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

// Runs `layer(state offset, sequences)` for all layers of a state.
void Run(
    benchmark::State& state, size_t state_floats,
    const std::function<void(size_t, absl::Span<const SequenceRows>)>& layer) {
  const auto num_rows = static_cast<uint32_t>(state.range(0));
  std::vector<float> slot(kLayers * state_floats, 0.0f);
  std::vector<uint32_t> rows(num_rows);
  std::iota(rows.begin(), rows.end(), 0u);
  const SequenceRows sequence = {reinterpret_cast<std::byte*>(slot.data()),
                                 rows};
  for (auto _ : state) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      layer(l * state_floats * sizeof(float), {&sequence, 1});
    }
    benchmark::ClobberMemory();
  }
  const auto calls = static_cast<int64_t>(state.iterations()) * kLayers;
  state.SetItemsProcessed(calls * num_rows);
  state.SetBytesProcessed(calls * 2 *
                          static_cast<int64_t>(state_floats * sizeof(float)));
}

// LFM2 1.2B: 2048 channels, 3 taps.
void BM_ShortConv(benchmark::State& state) {
  constexpr uint32_t kChannels = 2048;
  constexpr uint32_t kTaps = 3;
  const auto rows = static_cast<size_t>(state.range(0));
  const std::vector<float> in = Inputs(rows * kChannels);
  const std::vector<float> weights = Inputs(kChannels * kTaps);
  std::vector<float> out(rows * kChannels);
  Run(state, (kTaps - 1) * kChannels,
      [&](size_t offset, absl::Span<const SequenceRows> sequences) {
        ShortConv({.channels = kChannels,
                   .taps = kTaps,
                   .state_offset = offset,
                   .weights = weights.data(),
                   .in = {in.data(), kChannels},
                   .out = out.data()},
                  sequences, 0, 1);
      });
}

// Granite 4.0 H Micro: 64 heads of 64, a state of 128, one group.
void BM_Scan(benchmark::State& state) {
  constexpr uint32_t kHeads = 64;
  constexpr uint32_t kHeadDim = 64;
  constexpr uint32_t kStateDim = 128;
  const auto rows = static_cast<size_t>(state.range(0));
  const std::vector<float> x = Inputs(rows * kHeads * kHeadDim);
  const std::vector<float> per_head = Inputs(rows * kHeads);
  const std::vector<float> bc = Inputs(rows * kStateDim);
  const std::vector<float> skip = Inputs(kHeads);
  std::vector<float> out(rows * kHeads * kHeadDim);
  Run(state, size_t{kHeads} * kHeadDim * kStateDim,
      [&](size_t offset, absl::Span<const SequenceRows> sequences) {
        Scan({.heads = kHeads,
              .head_dim = kHeadDim,
              .state_dim = kStateDim,
              .groups = 1,
              .state_offset = offset,
              .x = {x.data(), kHeads * kHeadDim},
              .dt = {per_head.data(), kHeads},
              .decay = {per_head.data(), kHeads},
              .b = {bc.data(), kStateDim},
              .c = {bc.data(), kStateDim},
              .skip = skip.data(),
              .out = out.data()},
             sequences, 0, 1);
      });
}

// 32 heads of 128 by 128, 16 of queries and keys: as in Qwen3-Next.
void BM_DeltaRule(benchmark::State& state) {
  constexpr uint32_t kHeads = 32;
  constexpr uint32_t kKeyHeads = 16;
  constexpr uint32_t kDim = 128;
  const auto rows = static_cast<size_t>(state.range(0));
  const std::vector<float> qk = Inputs(rows * kKeyHeads * kDim);
  const std::vector<float> v = Inputs(rows * kHeads * kDim);
  const std::vector<float> per_head = Inputs(rows * kHeads);
  std::vector<float> out(rows * kHeads * kDim);
  Run(state, size_t{kHeads} * kDim * kDim,
      [&](size_t offset, absl::Span<const SequenceRows> sequences) {
        DeltaRule({.heads = kHeads,
                   .key_heads = kKeyHeads,
                   .key_dim = kDim,
                   .value_dim = kDim,
                   .state_offset = offset,
                   .q = {qk.data(), kKeyHeads * kDim},
                   .k = {qk.data(), kKeyHeads * kDim},
                   .v = {v.data(), kHeads * kDim},
                   .decay = {per_head.data(), kHeads},
                   .beta = {per_head.data(), kHeads},
                   .out = out.data()},
                  sequences, 0, 1);
      });
}

BENCHMARK(BM_ShortConv)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Scan)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DeltaRule)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace everwarm::kernels

BENCHMARK_MAIN();
