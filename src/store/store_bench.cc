// What the store costs beside the disk: restores against plain direct reads of
// the same bytes in the same run, writes, and the scan at the start.
//
// Restores are measured with the page cache out of the way (O_DIRECT), into
// slots that are already mapped, as those of a running server are.
// STORE_BENCH_DIR names a directory on the disk in question (default: the
// system's temporary one).
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "store/aligned_buffer.h"
#include "store/block_store.h"
#include "store/posix_env.h"

namespace everwarm::store {
namespace {

// SmolLM2-135M: 30 layers of K and V, 3 heads of 64 halves; 1.4 MiB a block.
constexpr uint32_t kBlockTokens = 64;
const GroupScheme& Scheme() {
  static const auto* scheme = new GroupScheme{
      "f16", BlockGeometry(30, kBlockTokens, {{3, 128}, {3, 128}})};
  return *scheme;
}
// 128 MiB.
constexpr size_t kBlocks = 91;

std::string BenchDir() {
  const char* dir = std::getenv("STORE_BENCH_DIR");
  const std::filesystem::path base =
      dir != nullptr ? dir : std::filesystem::temp_directory_path();
  return (base / ("everwarm_store_bench_" + std::to_string(getpid()))).string();
}

std::vector<cache::BlockIdentity> MakeChain(size_t blocks, TokenId seed,
                                            uint32_t block_tokens) {
  std::vector<cache::BlockIdentity> chain;
  const NodeId root = RootId(Fingerprint{}, "");
  NodeId parent = root;
  for (size_t i = 0; i < blocks; ++i) {
    cache::BlockIdentity identity;
    for (uint32_t t = 0; t < block_tokens; ++t) {
      identity.tokens.push_back(seed + static_cast<TokenId>(t));
    }
    identity.parent = parent;
    identity.root = root;
    identity.start = static_cast<TokenPos>(i * block_tokens);
    identity.key = {ChildId(parent, identity.tokens), 0};
    parent = identity.key.node;
    chain.push_back(std::move(identity));
  }
  return chain;
}

// A store in a directory of its own, with a block's worth of memory for each of
// the chain's blocks.
class Bench {
 public:
  explicit Bench(const GroupScheme& scheme, size_t readers = 2,
                 bool verify = true)
      : scheme_(scheme), dir_(BenchDir()), pool_({scheme.geometry}) {
    std::filesystem::remove_all(dir_);
    options_.dir = dir_;
    options_.groups = {scheme};
    options_.reader_tasks = readers;
    options_.verify_payload = verify;
    readers_ = std::make_unique<ThreadExecutor>("reader", readers);
    Open();
  }
  ~Bench() {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  size_t Open() {
    store_.reset();
    auto opened = BlockStore::Open(
        options_, {&env_, &clock_, &writers_, readers_.get(), NullLogger()});
    store_ = std::move(opened->store);
    return opened->entries.size();
  }
  std::vector<cache::BlockRef> MakeBlocks(size_t count) {
    std::vector<cache::BlockRef> blocks;
    uint32_t value = 1;
    for (size_t i = 0; i < count; ++i) {
      blocks.push_back(*pool_.Allocate(0, 0));
      for (size_t at = 0; at < scheme_.geometry.slot_bytes(); at += 4) {
        value = value * 1664525 + 1013904223;
        std::memcpy(blocks.back()->data() + at, &value, 4);
      }
    }
    return blocks;
  }
  // False when one failed.
  bool Await(size_t count) {
    bool all = true;
    while (count > 0) {
      for (const cache::TierEvent& event : store_->TakeEvents()) {
        --count;
        all = all && (std::holds_alternative<cache::StoredEvent>(event) ||
                      std::holds_alternative<cache::LoadedEvent>(event));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return all;
  }
  bool StoreAll(const std::vector<cache::BlockIdentity>& chain,
                const std::vector<cache::BlockRef>& blocks) {
    for (size_t i = 0; i < chain.size(); ++i) {
      while (!store_->Store({chain[i], blocks[i % blocks.size()]}).ok()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    return Await(chain.size());
  }
  bool LoadAll(const std::vector<cache::BlockIdentity>& chain,
               const std::vector<cache::BlockRef>& blocks) {
    for (size_t i = 0; i < chain.size(); ++i) {
      store_->Load({chain[i], blocks[i]});
    }
    return Await(chain.size());
  }
  std::string PathOf(const cache::BlockIdentity& identity) const {
    return dir_ + "/" + options_.fingerprint.hex() + "/" +
           BlockFileName(identity.key);
  }
  BlockStore& store() { return *store_; }

 private:
  const GroupScheme scheme_;
  const std::string dir_;
  cache::BlockPool pool_;
  SystemClock clock_;
  PosixEnv env_;
  StoreOptions options_;
  ThreadExecutor writers_{"writer", 1};
  std::unique_ptr<ThreadExecutor> readers_;
  std::unique_ptr<BlockStore> store_;
};

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since)
      .count();
}

// Reads every file of the chain, one after the other, straight into the slots.
void PlainRead(const Bench& bench,
               const std::vector<cache::BlockIdentity>& chain,
               const std::vector<cache::BlockRef>& blocks, size_t begin,
               size_t step) {
  const size_t bytes = Scheme().geometry.slot_bytes();
  for (size_t i = begin; i < chain.size(); i += step) {
    const int fd =
        open(bench.PathOf(chain[i]).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || pread(fd, blocks[i]->data(), bytes, kHeaderBytes) !=
                      static_cast<ssize_t>(bytes)) {
      std::abort();
    }
    close(fd);
  }
}

// Arguments: reader threads, verify. Counters: bytes a second of the store, of
// one thread of plain reads, of as many threads of them, and the store's share
// of the better one. Both sides alternate.
void BM_Restore(benchmark::State& state) {
  const auto readers = static_cast<size_t>(state.range(0));
  Bench bench(Scheme(), readers, state.range(1) != 0);
  const auto chain = MakeChain(kBlocks, 1, kBlockTokens);
  const auto blocks = bench.MakeBlocks(kBlocks);
  if (!bench.StoreAll(chain, blocks)) {
    state.SkipWithError("not stored");
    return;
  }
  double plain = 0;
  double parallel = 0;
  double store = 0;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    PlainRead(bench, chain, blocks, 0, 1);
    plain += Seconds(start);
    start = std::chrono::steady_clock::now();
    {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < readers; ++i) {
        threads.emplace_back(
            [&, i] { PlainRead(bench, chain, blocks, i, readers); });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
    }
    parallel += Seconds(start);
    start = std::chrono::steady_clock::now();
    if (!bench.LoadAll(chain, blocks)) {
      state.SkipWithError("not loaded");
      return;
    }
    const double seconds = Seconds(start);
    store += seconds;
    state.SetIterationTime(seconds);
  }
  const double bytes = static_cast<double>(kBlocks) *
                       static_cast<double>(Scheme().geometry.slot_bytes()) *
                       static_cast<double>(state.iterations());
  state.counters["store_MBps"] = bytes / store / 1e6;
  state.counters["plain_MBps"] = bytes / plain / 1e6;
  state.counters["plain_threads_MBps"] = bytes / parallel / 1e6;
  state.counters["store_over_plain"] = std::min(plain, parallel) / store;
}
BENCHMARK(BM_Restore)
    ->ArgNames({"readers", "verify"})
    ->Args({1, 1})
    ->Args({2, 1})
    ->Args({4, 1})
    ->Args({2, 0})
    ->UseManualTime()
    ->Iterations(8)
    ->Unit(benchmark::kMillisecond);

// Time until 128 MiB are durable. Argument: tokens of the last span, so 64 is
// full blocks and less is as many tails.
void BM_Store(benchmark::State& state) {
  Bench bench(Scheme());
  const auto blocks = bench.MakeBlocks(kBlocks);
  TokenId seed = 1;
  for (auto _ : state) {
    auto chain = MakeChain(kBlocks, seed++, kBlockTokens);
    for (cache::BlockIdentity& identity : chain) {
      identity.tokens.resize(static_cast<size_t>(state.range(0)));
      identity.key.node = ChildId(identity.parent, identity.tokens);
    }
    const auto start = std::chrono::steady_clock::now();
    if (!bench.StoreAll(chain, blocks)) {
      state.SkipWithError("not stored");
      return;
    }
    state.SetIterationTime(Seconds(start));
    for (const cache::BlockIdentity& identity : chain) {
      bench.store().Remove(identity.key);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(
      state.iterations() * kBlocks *
      Scheme().geometry.PayloadBytes(static_cast<uint32_t>(state.range(0)))));
}
BENCHMARK(BM_Store)->Arg(64)->Arg(32)->UseManualTime()->Iterations(6)->Unit(
    benchmark::kMillisecond);

// Opening a directory of 10,000 blocks (the inodes are in memory; the headers
// are read from the disk).
void BM_Scan(benchmark::State& state) {
  constexpr size_t kEntries = 10000;
  const GroupScheme scheme = {"f16", BlockGeometry(1, 64, {{1, 64}})};
  Bench bench(scheme);
  const auto blocks = bench.MakeBlocks(1);
  if (!bench.StoreAll(MakeChain(kEntries, 1, 64), blocks)) {
    state.SkipWithError("not stored");
    return;
  }
  for (auto _ : state) {
    if (bench.Open() != kEntries) {
      state.SkipWithError("not found");
      return;
    }
  }
}
BENCHMARK(BM_Scan)->Iterations(5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace everwarm::store

BENCHMARK_MAIN();
