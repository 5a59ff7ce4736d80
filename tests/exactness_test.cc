// The promise that a hit never changes an answer, on real models with the real
// pool, tree and files: logits are compared bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "cache/kv_cache.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "store/block_store.h"
#include "store/posix_env.h"
#include "testing/source_files.h"
#include "testing/temp_dir.h"

namespace everwarm {
namespace {

constexpr uint32_t kChunk = 512;
constexpr int kGreedyTokens = 256;

const char* const kModels[] = {"SmolLM2-135M-Instruct.Q4_1.gguf",
                               "gemma-3-270m-q4_k_m.gguf"};

// A process with a cache directory, without a scheduler: the test decides each
// step. Destroying it without Flush() is what a kill leaves behind.
class Process {
 public:
  Process(models::Model* model, const std::string& dir) : model_(model) {
    cache::KvCache::Config config;
    std::vector<BlockGeometry> geometries;
    std::vector<store::GroupScheme> schemes;
    for (const models::ModelGroup& group : model->groups()) {
      config.layout.groups.push_back({group.name,
                                      group.window == 0
                                          ? cache::GroupKind::kFull
                                          : cache::GroupKind::kWindow,
                                      group.window, group.geometry});
      geometries.push_back(group.geometry);
      schemes.push_back({"f16", group.geometry});
    }
    config.layout.block_tokens = geometries[0].block_tokens();
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

TokenId Greedy(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// All logits of the new turn's end and of the greedy tokens after it.
std::vector<std::vector<float>> Continue(Process& process,
                                         cache::Sequence& sequence,
                                         absl::Span<const TokenId> turn) {
  std::vector<std::vector<float>> all;
  all.push_back(process.Compute(sequence, turn, kChunk));
  for (int i = 0; i < kGreedyTokens; ++i) {
    const TokenId token = Greedy(all.back());
    all.push_back(process.Compute(sequence, {token}, kChunk));
  }
  return all;
}

void ExpectSameBits(const std::vector<std::vector<float>>& a,
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

// A model, a long text and a next turn.
class RealModel : public testing::Test {
 protected:
  // Skips the test where the model was not fetched.
  void Load(const std::string& name) {
    const std::string path = ModelPath(name);
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is not there; tools/setup.sh models gemma";
    }
    LoadFile(path);
  }

  void LoadFile(const std::string& path) {
    auto model = models::Model::Load(path, {.num_threads = 2});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    auto vocabulary = models::Vocabulary::Load(path);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += "On day " + std::to_string(i * 37 % 101) +
              " the harbour counted " + std::to_string(i * 7919 % 1000) +
              " crates and one question about the weather. ";
    }
    auto tokens = (*vocabulary)->Tokenize(text, {});
    ASSERT_TRUE(tokens.ok());
    tokens_ = *tokens;
    auto turn = (*vocabulary)
                    ->Tokenize(
                        "Then somebody asked what had become of the "
                        "last ship, and the answer was long:",
                        {.add_special = false});
    ASSERT_TRUE(turn.ok());
    turn_ = *turn;
    ASSERT_GE(tokens_.size(), 800u);
    ASSERT_GE(turn_.size(), 16u);
  }

  std::vector<TokenId> With(size_t prefix) const {
    std::vector<TokenId> prompt(tokens_.begin(), tokens_.begin() + prefix);
    prompt.insert(prompt.end(), turn_.begin(), turn_.end());
    return prompt;
  }

  TempDir dir_;
  std::unique_ptr<models::Model> model_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> turn_;
};

class ExactnessTest : public RealModel,
                      public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { Load(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(BothModels, ExactnessTest, testing::ValuesIn(kModels));

TEST_P(ExactnessTest, EveryWayBackGivesTheLogitsOfTheLiveContinuation) {
  // Not at a block's end, and longer than Gemma's window.
  constexpr size_t kPrefix = 777;
  const absl::Span<const TokenId> prefix =
      absl::MakeConstSpan(tokens_).first(kPrefix);
  std::vector<std::vector<float>> live;
  {
    Process process(model_.get(), dir_.path());
    auto sequence = process.Take(prefix);
    process.Compute(*sequence, prefix, kChunk);
    process.cache().Publish(*sequence);
    live = Continue(process, *sequence, turn_);

    auto from_ram = process.Take(With(kPrefix));
    EXPECT_EQ(from_ram->length(), kPrefix);
    EXPECT_EQ(from_ram->reuse().ram, kPrefix);
    ExpectSameBits(live, Continue(process, *from_ram, turn_), "RAM hit");

    sequence.reset();
    from_ram.reset();
    process.DemoteAll();
    auto from_disk = process.Take(With(kPrefix));
    EXPECT_EQ(from_disk->length(), kPrefix);
    EXPECT_EQ(from_disk->reuse().tier, kPrefix);
    ExpectSameBits(live, Continue(process, *from_disk, turn_),
                   "hit after eviction to disk");
  }
  Process process(model_.get(), dir_.path());
  auto restarted = process.Take(With(kPrefix));
  EXPECT_EQ(restarted->length(), kPrefix);
  EXPECT_EQ(restarted->reuse().tier, kPrefix);
  ExpectSameBits(live, Continue(process, *restarted, turn_),
                 "hit after a restart");
}

TEST_P(ExactnessTest, APartOfABlockGivesTheLogitsOfALiveSequence) {
  // Inside a block, where the donor goes on with something else. Both prefixes
  // are computed in one step of many rows.
  constexpr size_t kShared = 421;
  std::vector<std::vector<float>> live;
  {
    TempDir other;
    Process process(model_.get(), other.path());
    const auto shared = absl::MakeConstSpan(tokens_).first(kShared);
    auto sequence = process.Take(shared);
    process.Compute(*sequence, shared, kChunk);
    live = Continue(process, *sequence, turn_);
  }
  Process process(model_.get(), dir_.path());
  const auto donor_tokens = absl::MakeConstSpan(tokens_).first(500);
  auto donor = process.Take(donor_tokens);
  process.Compute(*donor, donor_tokens, kChunk);
  process.cache().Publish(*donor);
  auto borrower = process.Take(With(kShared));
  EXPECT_EQ(borrower->length(), kShared);
  ExpectSameBits(live, Continue(process, *borrower, turn_),
                 "part of a block in RAM");
  borrower.reset();
  donor.reset();
  process.DemoteAll();
  auto from_disk = process.Take(With(kShared));
  EXPECT_EQ(from_disk->length(), kShared);
  ExpectSameBits(live, Continue(process, *from_disk, turn_),
                 "part of a block from disk");
}

TEST_P(ExactnessTest, ABorrowerDoesNotDisturbTheDonor) {
  constexpr size_t kPrefix = 300;
  const auto prefix = absl::MakeConstSpan(tokens_).first(kPrefix);
  Process process(model_.get(), dir_.path());
  auto donor = process.Take(prefix);
  process.Compute(*donor, prefix, kChunk);
  process.cache().Publish(*donor);
  auto first = process.Take(With(kPrefix));
  auto second = process.Take(With(kPrefix));
  const auto of_first = Continue(process, *first, turn_);
  const auto of_donor = Continue(process, *donor, turn_);
  const auto of_second = Continue(process, *second, turn_);
  ExpectSameBits(of_first, of_donor, "donor after its borrower went on");
  ExpectSameBits(of_first, of_second, "second borrower");
}

class CutTest : public RealModel {
 protected:
  void SetUp() override { Load(kModels[0]); }
};

// Every length of the cached part, computed token by token, gives the logits
// that a cold prompt in one step gives.
TEST_F(CutTest, EveryCutOfAPromptGivesTheLogitsOfAColdOne) {
  ASSERT_TRUE(model_->info().row_independent);
  constexpr size_t kLength = 200;
  const auto prompt = absl::MakeConstSpan(tokens_).first(kLength);
  std::vector<float> cold;
  {
    TempDir other;
    Process process(model_.get(), other.path());
    cold = process.Compute(*process.Take(prompt), prompt, kChunk);
  }
  Process process(model_.get(), dir_.path());
  auto grower = process.Take(prompt);
  for (size_t cut = 1; cut < kLength; ++cut) {
    process.Compute(*grower, prompt.subspan(cut - 1, 1), kChunk);
    process.cache().Publish(*grower);
    process.cache().Poll();
    auto sequence = process.Take(prompt);
    ASSERT_EQ(sequence->length(), cut);
    const std::vector<float> logits =
        process.Compute(*sequence, prompt.subspan(cut), kChunk);
    ExpectSameBits({cold}, {logits}, ("cut " + std::to_string(cut)).c_str());
  }
}

}  // namespace
}  // namespace everwarm
