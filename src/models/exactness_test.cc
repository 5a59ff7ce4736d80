// The same tokens give the same bits, however they are cut into steps.
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "testing/model_harness.h"
#include "testing/source_files.h"

namespace everwarm::models {
namespace {

constexpr char kSmolLm[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kGemma[] = "gemma-3-270m-q4_k_m.gguf";

class ExactnessTest : public testing::Test {
 protected:
  void LoadTokens(const std::string& name) {
    path_ = ModelPath(name);
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << path_ << " is not there";
    }
    const auto vocabulary = Vocabulary::Load(path_);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    auto tokens = (*vocabulary)->Tokenize(TestText(), {});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    tokens_ = *std::move(tokens);
    tokens_.resize(kTokens);
  }

  std::unique_ptr<Model> Load(uint32_t threads, const std::string& kv = "f16") {
    auto model = Model::Load(
        path_, {.num_threads = threads, .kv = KvScheme::Parse(kv).value()});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // Logits of the last position, after all tokens in steps of `chunk`.
  std::vector<float> LastLogits(Model& model, size_t chunk) {
    const SequenceBlocks blocks(model, kTokens);
    std::vector<float> logits;
    for (size_t start = 0; start < tokens_.size(); start += chunk) {
      const auto part = absl::MakeConstSpan(tokens_).subspan(start, chunk);
      const bool last = start + part.size() == tokens_.size();
      const auto step =
          StepOnce(model, blocks, part, static_cast<TokenPos>(start),
                   last ? Wanted::kLast : Wanted::kNone);
      EXPECT_TRUE(step.ok()) << step.status();
      logits.assign(step->begin(), step->end());
    }
    return logits;
  }

  static bool SameBits(const std::vector<float>& a,
                       const std::vector<float>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  static constexpr TokenPos kTokens = 512;
  std::string path_;
  std::vector<TokenId> tokens_;
};

TEST_F(ExactnessTest, StepSizeDoesNotChangeABitOfSmolLm) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kSmolLm));
  const std::unique_ptr<Model> model = Load(1);
  ASSERT_TRUE(model->info().row_independent);
  const std::vector<float> whole = LastLogits(*model, kTokens);
  ASSERT_EQ(whole.size(), model->info().vocab_size);
  for (const size_t chunk : {1, 7, 64, 300}) {
    EXPECT_TRUE(SameBits(LastLogits(*model, chunk), whole))
        << "in steps of " << chunk;
  }
}

// Steps that end before, at and behind the border between two codecs.
TEST_F(ExactnessTest, StepSizeDoesNotChangeABitOfFirstTokensInAnotherCodec) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kSmolLm));
  for (const char* kv : {"q4+f16:64", "turbo+q8:100"}) {
    const std::unique_ptr<Model> model = Load(1, kv);
    const std::vector<float> whole = LastLogits(*model, kTokens);
    for (const size_t chunk : {7, 64, 300}) {
      EXPECT_TRUE(SameBits(LastLogits(*model, chunk), whole))
          << kv << " in steps of " << chunk;
    }
    EXPECT_TRUE(SameBits(LastLogits(*Load(3, kv), 64), whole)) << kv;
  }
}

TEST_F(ExactnessTest, ThreadsDoNotChangeABitOfSmolLm) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kSmolLm));
  const std::vector<float> one = LastLogits(*Load(1), 64);
  for (const uint32_t threads : {2, 3}) {
    EXPECT_TRUE(SameBits(LastLogits(*Load(threads), 64), one))
        << threads << " threads";
  }
}

TEST_F(ExactnessTest, OtherSequencesInAStepDoNotChangeABitOfSmolLm) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kSmolLm));
  const std::unique_ptr<Model> model = Load(1);
  const std::vector<float> alone = LastLogits(*model, kTokens);
  // Two other sequences take the first tokens, one in a step of its own size.
  const SequenceBlocks ours(*model, kTokens);
  const SequenceBlocks first(*model, kTokens);
  const SequenceBlocks second(*model, kTokens);
  const std::vector<StepSequence> sequences = {first.View(), ours.View(),
                                               second.View()};
  std::vector<float> logits;
  for (size_t start = 0; start < kTokens; start += 128) {
    std::vector<StepRow> rows;
    for (size_t i = start; i < start + 128; ++i) {
      const auto position = static_cast<TokenPos>(i);
      if (i % 3 == 0) {
        rows.push_back({tokens_[i], static_cast<TokenPos>(i / 3), 0, true});
      }
      rows.push_back({tokens_[i], position, 1, i + 1 == kTokens});
    }
    rows.push_back({7, static_cast<TokenPos>(start / 128), 2, true});
    const auto step = model->Step({rows, sequences});
    ASSERT_TRUE(step.ok()) << step.status();
    const size_t width = model->info().vocab_size;
    // Ours is the last but one of those that want logits.
    if (start + 128 == kTokens) {
      logits.assign(step->end() - 2 * width, step->end() - width);
    }
  }
  EXPECT_TRUE(SameBits(logits, alone));
}

TEST_F(ExactnessTest, EqualStepsGiveEqualBitsOfGemma) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kGemma));
  const std::unique_ptr<Model> model = Load(2);
  EXPECT_FALSE(model->info().row_independent);
  const std::vector<float> once = LastLogits(*model, 100);
  EXPECT_TRUE(SameBits(LastLogits(*model, 100), once));
  EXPECT_TRUE(SameBits(LastLogits(*Load(1), 100), once)) << "one thread";
}

TEST_F(ExactnessTest, ARowsLogitsDoNotDependOnWhichRowsWantThem) {
  ASSERT_NO_FATAL_FAILURE(LoadTokens(kSmolLm));
  const std::unique_ptr<Model> model = Load(1);
  const std::vector<float> last = LastLogits(*model, kTokens);
  const SequenceBlocks blocks(*model, kTokens);
  const auto all = StepOnce(*model, blocks, tokens_, 0, Wanted::kAll);
  ASSERT_TRUE(all.ok()) << all.status();
  const std::vector<float> of_all(all->end() - last.size(), all->end());
  EXPECT_TRUE(SameBits(of_all, last));
}

}  // namespace
}  // namespace everwarm::models
