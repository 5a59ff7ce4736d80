// A process whose steps the test decides, with the real pool, tree and files,
// and the comparison of the logits that come out of it.
//
// Link: ew_engine, ew_store, ew_cache, ew_models.
#ifndef EVERWARM_TESTING_STEPPED_PROCESS_H_
#define EVERWARM_TESTING_STEPPED_PROCESS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "cache/kv_cache.h"
#include "engine/cache_layout.h"
#include "models/model.h"
#include "store/block_store.h"
#include "store/posix_env.h"

namespace everwarm {

// A process with a cache directory, without a scheduler: the test decides each
// step. Destroying it without Flush() is what a kill leaves behind.
class SteppedProcess {
 public:
  SteppedProcess(models::Model* model, const std::string& dir) : model_(model) {
    cache::KvCache::Config config;
    config.layout = engine::CacheLayoutOf(*model).value();
    std::vector<BySpan<BlockGeometry>> geometries;
    std::vector<BySpan<store::GroupScheme>> schemes;
    for (const models::ModelGroup& group : model->groups()) {
      const BySpan<BlockGeometry>& geometry = group.geometry;
      geometries.push_back(geometry);
      schemes.push_back({geometry.first_spans,
                         {group.scheme.first.name, geometry.first},
                         {group.recurrent ? "state" : group.scheme.rest.name,
                          geometry.rest}});
    }
    config.ram_target_bytes = uint64_t{1} << 30;
    config.ram_hard_cap_bytes = uint64_t{1} << 30;
    pool_ = std::make_unique<cache::BlockPool>(geometries);
    store::StoreOptions options;
    options.dir = dir;
    options.groups = schemes;
    options.min_free_bytes = 0;
    auto opened = store::BlockStore::Open(
        options, {&env_, &clock_, &writers_, &readers_, NullLogger()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(opened->store);
    cache_ = std::make_unique<cache::KvCache>(config, pool_.get(), store_.get(),
                                              &clock_, NullLogger());
    cache_->Adopt(std::move(opened->entries));
  }

  cache::KvCache& cache() { return *cache_; }

  std::unique_ptr<cache::Sequence> Take(absl::Span<const TokenId> prompt) {
    auto sequence = cache_->Take(prompt, "");
    while (!sequence->ready()) {
      cache_->Poll();
      std::this_thread::yield();
    }
    return sequence;
  }

  // Computes the tokens, in steps of at most `chunk`, and returns the logits of
  // the last.
  std::vector<float> Compute(cache::Sequence& sequence,
                             absl::Span<const TokenId> tokens, uint32_t chunk) {
    std::vector<float> logits;
    while (!tokens.empty()) {
      const absl::Span<const TokenId> now =
          tokens.first(std::min<size_t>(chunk, tokens.size()));
      tokens.remove_prefix(now.size());
      EXPECT_TRUE(cache_->Reserve(sequence, now.size()).ok());
      models::StepSequence tables;
      for (size_t g = 0; g < model_->groups().size(); ++g) {
        tables.groups.push_back(sequence.blocks(static_cast<GroupIndex>(g)));
      }
      std::vector<models::StepRow> rows;
      for (size_t i = 0; i < now.size(); ++i) {
        rows.push_back({now[i], sequence.length() + static_cast<TokenPos>(i), 0,
                        tokens.empty() && i + 1 == now.size()});
      }
      const auto result = model_->Step({rows, absl::MakeConstSpan(&tables, 1)});
      EXPECT_TRUE(result.ok()) << result.status();
      logits.assign(result->begin(), result->end());
      cache_->Append(sequence, now);
    }
    return logits;
  }

  // Everything published is on the disk.
  void Flush() {
    const uint64_t ticket = cache_->BeginFlush();
    for (;;) {
      cache_->Poll();
      if (const auto report = cache_->FlushOutcome(ticket)) {
        EXPECT_TRUE(report->durable());
        return;
      }
      std::this_thread::yield();
    }
  }

  // Nothing is left in RAM that nobody uses.
  void DemoteAll() {
    Flush();
    cache_->DemoteAll();
    EXPECT_EQ(cache_->stats().cached_blocks_in_ram, 0u);
  }

 private:
  models::Model* model_;
  store::PosixEnv env_;
  SystemClock clock_;
  std::unique_ptr<cache::BlockPool> pool_;
  ThreadExecutor writers_{"writer", 1};
  ThreadExecutor readers_{"reader", 2};
  std::unique_ptr<store::BlockStore> store_;
  std::unique_ptr<cache::KvCache> cache_;
};

inline TokenId Greedy(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// All logits of the new turn's end and of `greedy` tokens after it.
inline std::vector<std::vector<float>> Continue(SteppedProcess& process,
                                                cache::Sequence& sequence,
                                                absl::Span<const TokenId> turn,
                                                uint32_t chunk, int greedy) {
  std::vector<std::vector<float>> all;
  all.push_back(process.Compute(sequence, turn, chunk));
  for (int i = 0; i < greedy; ++i) {
    const TokenId token = Greedy(all.back());
    all.push_back(process.Compute(sequence, {token}, chunk));
  }
  return all;
}

inline void ExpectSameBits(const std::vector<std::vector<float>>& a,
                           const std::vector<std::vector<float>>& b,
                           const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size()) << what << ", token " << i;
    ASSERT_EQ(
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0)
        << what << ": logits of token " << i << " differ";
  }
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_STEPPED_PROCESS_H_
