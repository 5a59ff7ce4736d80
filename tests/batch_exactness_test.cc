// The promise that a request's logits do not depend on what else is computed:
// a real model and a small one of each architecture under the real scheduler,
// requests that join and leave, against each of them alone, bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/kv_cache.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "testing/engine_harness.h"
#include "testing/temp_dir.h"
#include "testing/tested_model.h"

namespace everwarm::engine {
namespace {

// Remembers all logits that a model gives. Requests are told apart by their
// first token; none shares a block with another.
class Recorder final : public models::Model {
 public:
  using Logits = std::map<std::pair<TokenId, TokenPos>, std::vector<float>>;

  explicit Recorder(models::Model* model) : model_(model) {}

  const models::ModelInfo& info() const override { return model_->info(); }
  const std::vector<models::ModelGroup>& groups() const override {
    return model_->groups();
  }
  absl::StatusOr<absl::Span<const float>> Step(
      const models::StepInput& input) override {
    auto result = model_->Step(input);
    if (!result.ok()) {
      return result;
    }
    rows_at_once_ = std::max(rows_at_once_, input.sequences.size());
    absl::Span<const float> rest = *result;
    for (const models::StepRow& row : input.rows) {
      const std::byte* const first = input.sequences[row.sequence].groups[0][0];
      if (row.position == 0) {
        requests_[first] = row.token;
      }
      if (row.wants_logits) {
        const auto logits = rest.first(info().vocab_size);
        logits_[{requests_.at(first), row.position}].assign(logits.begin(),
                                                            logits.end());
        rest.remove_prefix(logits.size());
      }
    }
    return result;
  }

  const Logits& logits() const { return logits_; }
  size_t rows_at_once() const { return rows_at_once_; }

 private:
  models::Model* const model_;
  std::map<const std::byte*, TokenId> requests_;
  Logits logits_;
  size_t rows_at_once_ = 0;
};

class World {
 public:
  explicit World(models::Model* model)
      : recorder_(model),
        pool_(GeometriesOf(*model)),
        cache_(CacheConfigFor(*model, kRam, kRam), &pool_, &tier_, &clock_,
               NullLogger()),
        scheduler_({8192, 8, 512, {3, std::chrono::nanoseconds(0), 256}},
                   {&recorder_, &cache_, &clock_, NullLogger()}) {}

  std::shared_ptr<ReplyChannel> Ask(const Request& request) {
    auto channel = std::make_shared<ReplyChannel>();
    scheduler_.Add(
        std::make_unique<Generation>(request, channel, &text_, &clock_));
    return channel;
  }
  void Turn() {
    cache_.Poll();
    scheduler_.DropCancelled(false);
    scheduler_.Step();
  }
  void RunAll() {
    while (!scheduler_.idle()) {
      Turn();
    }
  }
  const Recorder& recorder() const { return recorder_; }

 private:
  static constexpr uint64_t kRam = uint64_t{1} << 30;
  Recorder recorder_;
  FakeTokenText text_;
  SystemClock clock_;
  cache::BlockPool pool_;
  cache::NullTier tier_;
  cache::KvCache cache_;
  Scheduler scheduler_;
};

std::vector<TokenId> Words(size_t length, TokenId first, uint32_t vocabulary) {
  std::vector<TokenId> tokens = {first};
  while (tokens.size() < length) {
    tokens.push_back(static_cast<TokenId>(
        (tokens.size() * 7919 + static_cast<size_t>(first) * 31) % vocabulary));
  }
  return tokens;
}

std::vector<std::string> RowIndependentModels() {
  std::vector<std::string> names = TinyModelNames();
  for (std::string& mixed : MixedModelNames()) {
    names.push_back(std::move(mixed));
  }
  names.push_back(kSmolLm);
  return names;
}

class BatchExactnessTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, BatchExactnessTest,
                         testing::ValuesIn(RowIndependentModels()),
                         [](const auto& info) {
                           return TestedModelName(info.param);
                         });

TEST_P(BatchExactnessTest, RowsThatJoinAndLeaveHaveTheLogitsOfRequestsAlone) {
  const TempDir dir;
  const std::string path = TestedModelPath(GetParam(), dir);
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there; tools/setup.sh models";
  }
  auto model =
      models::Model::Load(path, {.num_threads = TestedModelThreads(GetParam()),
                                 .kv = TestedModelKv(GetParam())});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE((*model)->info().row_independent);
  const uint32_t vocabulary = (*model)->info().vocab_size;
  constexpr size_t kLengths[] = {3, 64, 700, 129, 17, 350, 65, 1000};
  std::vector<Request> requests;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    requests.push_back(GreedyRequest(
        Words(kLengths[i], static_cast<TokenId>(10 + i), vocabulary),
        i % 2 == 0 ? 120 : 25));
  }
  World together(model->get());
  std::vector<std::shared_ptr<ReplyChannel>> channels;
  for (const Request& request : requests) {
    channels.push_back(together.Ask(request));
    together.Turn();
    together.Turn();
    together.Turn();
  }
  // One more, which leaves in the middle of its prompt.
  auto quitter = together.Ask(GreedyRequest(Words(900, 50, vocabulary), 8));
  together.Turn();
  together.Turn();
  quitter->Cancel();
  together.RunAll();
  // How many there are at once depends on how long steps take.
  EXPECT_GE(together.recorder().rows_at_once(), 3u);

  size_t compared = 0;
  for (const Request& request : requests) {
    World alone(model->get());
    auto channel = alone.Ask(request);
    alone.RunAll();
    ASSERT_EQ(alone.recorder().logits().size(), request.max_tokens);
    for (const auto& [key, logits] : alone.recorder().logits()) {
      const auto found = together.recorder().logits().find(key);
      ASSERT_NE(found, together.recorder().logits().end());
      ASSERT_EQ(std::memcmp(found->second.data(), logits.data(),
                            logits.size() * sizeof(float)),
                0)
          << "request " << key.first << ", position " << key.second;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 4 * 120u + 4 * 25);
}

}  // namespace
}  // namespace everwarm::engine
