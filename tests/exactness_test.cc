// The promise that a hit never changes an answer, on real models and on a small
// one of each architecture, with the real pool, tree and files: logits are
// compared bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "testing/stepped_process.h"
#include "testing/temp_dir.h"
#include "testing/tested_model.h"

namespace everwarm {
namespace {

constexpr uint32_t kChunk = 512;
constexpr int kGreedyTokens = 256;

// All of them, and `fetched` besides.
std::vector<std::string> TestedModels(std::vector<std::string> fetched) {
  for (const auto& names : {TinyModelNames(), MixedModelNames()}) {
    fetched.insert(fetched.end(), names.begin(), names.end());
  }
  return fetched;
}

// All logits of the new turn's end and of the greedy tokens after it.
std::vector<std::vector<float>> Continue(SteppedProcess& process,
                                         cache::Sequence& sequence,
                                         absl::Span<const TokenId> turn) {
  return Continue(process, sequence, turn, kChunk, kGreedyTokens);
}

// A model, a long text and a next turn.
class TestedModel : public testing::TestWithParam<std::string> {
 protected:
  // Skips the test where the model was not fetched.
  void SetUp() override {
    const std::string path = TestedModelPath(GetParam(), models_dir_);
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is not there; tools/setup.sh models gemma";
    }
    auto model = models::Model::Load(
        path, {.num_threads = TestedModelThreads(GetParam()),
               .kv = TestedModelKv(GetParam())});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    if (IsFetchedModel(GetParam())) {
      ReadText(path);
    } else {
      MakeUpText();
    }
    ASSERT_GE(tokens_.size(), 800u);
    ASSERT_GE(turn_.size(), 16u);
  }

  void ReadText(const std::string& path) {
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
  }

  // The small models have no text.
  void MakeUpText() {
    const uint32_t size = model_->info().vocab_size;
    for (uint32_t i = 0; i < 900; ++i) {
      tokens_.push_back(static_cast<TokenId>((i * i + 3 * i) % size));
    }
    for (uint32_t i = 0; i < 20; ++i) {
      turn_.push_back(static_cast<TokenId>((7 * i + 11) % size));
    }
  }

  bool HasStates() const {
    return std::any_of(
        model_->groups().begin(), model_->groups().end(),
        [](const models::ModelGroup& group) { return group.recurrent; });
  }

  std::vector<TokenId> With(size_t prefix) const {
    std::vector<TokenId> prompt(tokens_.begin(), tokens_.begin() + prefix);
    prompt.insert(prompt.end(), turn_.begin(), turn_.end());
    return prompt;
  }

  TempDir models_dir_;
  TempDir dir_;
  std::unique_ptr<models::Model> model_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> turn_;
};

class ExactnessTest : public TestedModel {};
INSTANTIATE_TEST_SUITE_P(
    Models, ExactnessTest,
    testing::ValuesIn(TestedModels({kSmolLm, kGemma,
                                    std::string(kSmolLm) + "|q4+f16:64",
                                    std::string(kSmolLm) + "|turbo+q8:100"})),
    [](const auto& info) { return TestedModelName(info.param); });

TEST_P(ExactnessTest, EveryWayBackGivesTheLogitsOfTheLiveContinuation) {
  // Not at a block's end, and longer than Gemma's window.
  constexpr size_t kPrefix = 777;
  const absl::Span<const TokenId> prefix =
      absl::MakeConstSpan(tokens_).first(kPrefix);
  std::vector<std::vector<float>> live;
  {
    SteppedProcess process(model_.get(), dir_.path());
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
  SteppedProcess process(model_.get(), dir_.path());
  auto restarted = process.Take(With(kPrefix));
  EXPECT_EQ(restarted->length(), kPrefix);
  EXPECT_EQ(restarted->reuse().tier, kPrefix);
  ExpectSameBits(live, Continue(process, *restarted, turn_),
                 "hit after a restart");
}

TEST_P(ExactnessTest, APartOfABlockGivesTheLogitsOfALiveSequence) {
  // Inside a block, where the donor goes on with something else. The
  // prefix is computed in one step of many rows by both.
  constexpr size_t kShared = 421;
  std::vector<std::vector<float>> live;
  {
    TempDir other;
    SteppedProcess process(model_.get(), other.path());
    const auto shared = absl::MakeConstSpan(tokens_).first(kShared);
    auto sequence = process.Take(shared);
    process.Compute(*sequence, shared, kChunk);
    live = Continue(process, *sequence, turn_);
  }
  SteppedProcess process(model_.get(), dir_.path());
  const auto donor_tokens = absl::MakeConstSpan(tokens_).first(500);
  auto donor = process.Take(donor_tokens);
  process.Compute(*donor, donor_tokens.first(kShared), kChunk);
  if (HasStates()) {
    // They are not anywhere between two publications.
    process.cache().Publish(*donor);
  }
  process.Compute(*donor, donor_tokens.subspan(kShared), kChunk);
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
  SteppedProcess process(model_.get(), dir_.path());
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

// Gemma's weights are not row-independent.
class CutTest : public TestedModel {};
INSTANTIATE_TEST_SUITE_P(Models, CutTest,
                         testing::ValuesIn(TestedModels({kSmolLm})),
                         [](const auto& info) {
                           return TestedModelName(info.param);
                         });

// Every length of the cached part, computed token by token, gives the logits
// that a cold prompt in one step gives.
TEST_P(CutTest, EveryCutOfAPromptGivesTheLogitsOfAColdOne) {
  ASSERT_TRUE(model_->info().row_independent);
  constexpr size_t kLength = 200;
  const auto prompt = absl::MakeConstSpan(tokens_).first(kLength);
  std::vector<float> cold;
  {
    TempDir other;
    SteppedProcess process(model_.get(), other.path());
    cold = process.Compute(*process.Take(prompt), prompt, kChunk);
  }
  SteppedProcess process(model_.get(), dir_.path());
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
