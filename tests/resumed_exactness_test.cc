// Every architecture with the real pool, tree and files: a prompt that is known
// in part goes on from the nearest place where all of its groups can, and has
// the logits of one that is not known at all, bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "models/model.h"
#include "testing/stepped_process.h"
#include "testing/temp_dir.h"
#include "testing/tested_model.h"

namespace everwarm {
namespace {

constexpr uint32_t kBlock = 16;
// Steps of the prompt; not of a block's length.
constexpr uint32_t kChunk = 50;
constexpr int kGreedyTokens = 20;

std::vector<TokenId> Tokens(size_t count, size_t seed) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<TokenId>((i * i + 7 * i + seed) % TinyGguf::kVocabulary));
  }
  return tokens;
}

std::vector<TokenId> Joined(absl::Span<const TokenId> a,
                            absl::Span<const TokenId> b) {
  std::vector<TokenId> joined(a.begin(), a.end());
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

using Logits = std::vector<std::vector<float>>;

class ResumedExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = TestedModelPath(GetParam(), models_dir_);
    ASSERT_FALSE(path.empty());
    auto model = models::Model::Load(path, {.block_tokens = kBlock,
                                            .num_threads = 1,
                                            .kv = TestedModelKv(GetParam())});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
  }

  Logits GoOn(SteppedProcess& process, cache::Sequence& sequence) {
    return Continue(process, sequence, turn_, kChunk, kGreedyTokens);
  }
  // The same from nothing, in a process that has nothing.
  Logits Cold(absl::Span<const TokenId> prefix) {
    TempDir empty;
    SteppedProcess process(model_.get(), empty.path());
    const auto sequence = process.Take(Joined(prefix, turn_));
    process.Compute(*sequence, prefix, kChunk);
    return GoOn(process, *sequence);
  }

  TempDir models_dir_;
  TempDir dir_;
  std::unique_ptr<models::Model> model_;
  const std::vector<TokenId> text_ = Tokens(230, 1);
  const std::vector<TokenId> turn_ = Tokens(23, 5);
};
INSTANTIATE_TEST_SUITE_P(All, ResumedExactnessTest,
                         testing::ValuesIn(TinyModelNames()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(FirstTokens, ResumedExactnessTest,
                         testing::ValuesIn(MixedModelNames()),
                         [](const auto& info) {
                           return TestedModelName(info.param);
                         });

TEST_P(ResumedExactnessTest, EveryCutOfAKnownTextGivesTheLogitsOfAColdOne) {
  SteppedProcess process(model_.get(), dir_.path());
  const absl::Span<const TokenId> text = text_;
  auto donor = process.Take(text);
  for (const size_t stop : {64u, 101u, 230u}) {
    process.Compute(
        *donor, text.subspan(donor->length(), stop - donor->length()), kChunk);
    process.cache().Publish(*donor);
  }
  // Less than the donor has, more, and just a place where it was published.
  for (const size_t cut : {60u, 64u, 101u, 102u, 170u, 229u}) {
    for (const bool from_disk : {false, true}) {
      if (from_disk) {
        donor.reset();
        process.DemoteAll();
      }
      const auto prefix = text.first(cut);
      auto sequence = process.Take(Joined(prefix, turn_));
      const size_t known = sequence->length();
      EXPECT_LE(known, cut);
      EXPECT_GE(known, cut >= 101 ? 101u : cut >= 64 ? 64u : 0u) << cut;
      process.Compute(*sequence, prefix.subspan(known), kChunk);
      ExpectSameBits(Cold(prefix), GoOn(process, *sequence),
                     ("cut " + std::to_string(cut)).c_str());
    }
  }
}

}  // namespace
}  // namespace everwarm
