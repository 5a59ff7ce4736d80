// What a recurrent model pays for its states: publishing one, and the copy that
// the next step waits for. Beside it a plain copy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "cache/kv_cache.h"

namespace everwarm::cache {
namespace {

constexpr uint32_t kBlockTokens = 64;
// Published states that stay in RAM, so that slots are used again.
constexpr uint64_t kKeptStates = 8;

// A conversation of `length` tokens with a state of `state_bytes`.
class Conversation {
 public:
  Conversation(size_t state_bytes, TokenPos length)
      : config_(MakeConfig(state_bytes)),
        pool_({config_.layout.groups[0].geometry,
               config_.layout.groups[1].geometry}),
        cache_(config_, &pool_, &tier_, &clock_, NullLogger()) {
    std::vector<TokenId> tokens(length);
    std::iota(tokens.begin(), tokens.end(), 0);
    sequence_ = cache_.Take(tokens, "");
    GoOn(tokens);
  }
  bool GoOn(const std::vector<TokenId>& tokens) {
    const bool room =
        cache_.Reserve(*sequence_, static_cast<TokenPos>(tokens.size())).ok();
    cache_.Append(*sequence_, tokens);
    return room;
  }
  void Publish() { cache_.Publish(*sequence_); }

 private:
  static KvCache::Config MakeConfig(size_t state_bytes) {
    KvCache::Config config;
    config.layout = {
        kBlockTokens,
        {{"recurrent", GroupKind::kRecurrent, 0,
          BlockGeometry(1, 1, {{1, static_cast<uint32_t>(state_bytes)}})},
         {"full", GroupKind::kFull, 0,
          BlockGeometry(1, kBlockTokens, {{1, 64}})}}};
    config.ram_target_bytes = kKeptStates * state_bytes + (uint64_t{1} << 20);
    config.ram_hard_cap_bytes = config.ram_target_bytes;
    return config;
  }

  const KvCache::Config config_;
  SystemClock clock_;
  BlockPool pool_;
  NullTier tier_;
  KvCache cache_;
  std::unique_ptr<Sequence> sequence_;
};

// Bytes of a state; tokens before it.
void Sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t bytes : {16 << 10, 1 << 20, 16 << 20, 64 << 20}) {
    bench->Args({bytes, 1000});
  }
  bench->Args({16 << 10, 30000});
  bench->ArgNames({"bytes", "tokens"})->Unit(benchmark::kMicrosecond);
}

void BM_PublishAndGoOn(benchmark::State& state) {
  Conversation conversation(static_cast<size_t>(state.range(0)),
                            static_cast<TokenPos>(state.range(1)));
  for (auto _ : state) {
    conversation.Publish();
    if (!conversation.GoOn({1})) {
      state.SkipWithError("no memory");
      return;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_PublishAndGoOn)->Apply(Sizes);

void BM_Copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Copy)
    ->Arg(16 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->Arg(64 << 20)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace everwarm::cache

BENCHMARK_MAIN();
