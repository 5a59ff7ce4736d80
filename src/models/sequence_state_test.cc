// Sequences with their keys, values and recurrent states: beside each other in
// a step, copied, and after steps that are refused. Every architecture.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/model.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_architectures.h"
#include "testing/tiny_variants.h"

namespace everwarm::models {
namespace {

constexpr TokenPos kTokens = 90;

std::vector<TokenId> Tokens(TokenId first) {
  std::vector<TokenId> tokens;
  for (TokenPos i = 0; i < kTokens; ++i) {
    tokens.push_back(
        static_cast<TokenId>((first + i * i + 3 * i) % TinyGguf::kVocabulary));
  }
  return tokens;
}

class SequenceStateTest : public testing::TestWithParam<TinyArchitecture> {
 protected:
  void SetUp() override {
    const std::string path = dir_.File("tiny.gguf");
    ASSERT_TRUE(GetParam().make(GGML_TYPE_Q8_0).Write(path));
    auto model = Model::Load(path, {.block_tokens = 16});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // Logits of all rows of tokens [begin, end) in one step.
  std::vector<float> Run(const SequenceBlocks& blocks,
                         const std::vector<TokenId>& tokens, TokenPos begin,
                         TokenPos end) {
    const auto step =
        StepOnce(*model_, blocks,
                 absl::MakeConstSpan(tokens).subspan(begin, end - begin), begin,
                 Wanted::kAll);
    EXPECT_TRUE(step.ok()) << step.status();
    return std::vector<float>(step->begin(), step->end());
  }

  static bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
    return a.size() == b.size() && !a.empty() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  const TempDir dir_;
  std::unique_ptr<Model> model_;
};
INSTANTIATE_TEST_SUITE_P(All, SequenceStateTest,
                         testing::ValuesIn(TinyArchitectures()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Variants, SequenceStateTest,
                         testing::ValuesIn(TinyVariants()),
                         [](const auto& info) { return info.param.name; });

// Rows of one, two and one again, of different lengths, in steps of any cut.
TEST_P(SequenceStateTest, SequencesBesideEachOtherGiveTheBitsOfEachAlone) {
  const std::vector<TokenId> tokens[] = {Tokens(1), Tokens(50)};
  std::vector<float> alone[2];
  for (int s = 0; s < 2; ++s) {
    alone[s] = Run(SequenceBlocks(*model_, kTokens), tokens[s], 0, kTokens);
  }
  const SequenceBlocks blocks[] = {SequenceBlocks(*model_, kTokens),
                                   SequenceBlocks(*model_, kTokens)};
  const std::vector<StepSequence> sequences = {blocks[0].View(),
                                               blocks[1].View()};
  TokenPos at[2] = {0, 0};
  std::vector<float> together[2];
  while (at[0] < kTokens || at[1] < kTokens) {
    std::vector<StepRow> rows;
    for (uint32_t i = 0; i < 23; ++i) {
      const uint32_t s = i % 3 == 1 ? 1 : 0;
      if (at[s] < kTokens) {
        rows.push_back({tokens[s][at[s]], at[s], s, true});
        ++at[s];
      }
    }
    const auto step = model_->Step({rows, sequences});
    ASSERT_TRUE(step.ok()) << step.status();
    const size_t vocabulary = model_->info().vocab_size;
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto logits = step->subspan(r * vocabulary, vocabulary);
      std::vector<float>& of = together[rows[r].sequence];
      of.insert(of.end(), logits.begin(), logits.end());
    }
  }
  for (int s = 0; s < 2; ++s) {
    EXPECT_TRUE(SameBits(together[s], alone[s])) << "sequence " << s;
  }
}

TEST_P(SequenceStateTest, ACopyGoesOnWithTheBitsOfTheOneThatLived) {
  const std::vector<TokenId> tokens = Tokens(7);
  const SequenceBlocks lived(*model_, kTokens);
  SequenceBlocks copied(*model_, kTokens);
  for (const TokenPos cut : {1u, 31u, 32u, 77u}) {
    const SequenceBlocks until(*model_, kTokens);
    Run(until, tokens, 0, cut);
    copied.CopyFrom(until);
    const std::vector<float> expected = Run(until, tokens, cut, kTokens);
    EXPECT_TRUE(SameBits(Run(copied, tokens, cut, kTokens), expected)) << cut;
  }
}

// Rows that want no logits, or some, leave the state as rows that all do.
TEST_P(SequenceStateTest, WhoWantsLogitsDoesNotChangeABit) {
  const std::vector<TokenId> tokens = Tokens(3);
  const SequenceBlocks wanting(*model_, kTokens);
  Run(wanting, tokens, 0, 80);
  const std::vector<float> expected = Run(wanting, tokens, 80, kTokens);
  for (const Wanted wanted : {Wanted::kNone, Wanted::kLast}) {
    const SequenceBlocks blocks(*model_, kTokens);
    for (TokenPos at = 0; at < 80; at += 20) {
      ASSERT_TRUE(StepOnce(*model_, blocks,
                           absl::MakeConstSpan(tokens).subspan(at, 20), at,
                           wanted)
                      .ok());
    }
    EXPECT_TRUE(SameBits(Run(blocks, tokens, 80, kTokens), expected));
  }
}

TEST_P(SequenceStateTest, ARefusedStepTouchesNothing) {
  const std::vector<TokenId> tokens = Tokens(5);
  const SequenceBlocks blocks(*model_, kTokens);
  Run(blocks, tokens, 0, 40);
  const std::vector<std::byte> before = blocks.Bytes();
  const std::vector<StepSequence> sequences = {blocks.View()};
  const std::vector<std::vector<StepRow>> refused = {
      {{1, 40, 0, true}, {TinyGguf::kVocabulary, 41, 0, true}},
      {{1, 40, 0, true}, {1, 42, 0, true}},
      {{1, 40, 0, true}, {1, 41, 1, true}},
  };
  for (const std::vector<StepRow>& rows : refused) {
    EXPECT_EQ(model_->Step({rows, sequences}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(blocks.Bytes() == before);
  }
}

}  // namespace
}  // namespace everwarm::models
