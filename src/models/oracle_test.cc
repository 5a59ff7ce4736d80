// Our logits against those of libllama's own model, on the models of the tests.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "llama.h"
#include "models/model.h"
#include "models/quiet_log.h"
#include "models/vocabulary.h"
#include "testing/f32_gguf.h"
#include "testing/logit_distance.h"
#include "testing/model_harness.h"
#include "testing/source_files.h"
#include "testing/temp_dir.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kThreads = 2;

struct LlamaFree {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

// Which positions are judged: logits are [count - first, vocabulary].
struct Judged {
  size_t first = 0;
  size_t count = 0;
};

// Logits by libllama. KV is f16, as ours.
std::vector<float> OracleLogits(const std::string& path,
                                const std::vector<TokenId>& tokens,
                                const Judged& judged, bool flash_attention) {
  SilenceLibraries();
  const std::unique_ptr<llama_model, LlamaFree> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 2048;
  params.n_batch = 512;
  params.n_ubatch = 512;
  params.n_threads = kThreads;
  params.n_threads_batch = kThreads;
  params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                           : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, LlamaFree> context(
      llama_init_from_model(model.get(), params));
  const auto width = static_cast<size_t>(
      llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
  std::vector<float> logits;
  for (size_t start = 0; start < judged.count; start += 512) {
    const size_t count = std::min<size_t>(512, judged.count - start);
    llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
    batch.n_tokens = static_cast<int32_t>(count);
    size_t wanted = 0;
    for (size_t i = 0; i < count; ++i) {
      batch.token[i] = tokens[start + i];
      batch.pos[i] = static_cast<llama_pos>(start + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = start + i >= judged.first ? 1 : 0;
      wanted += static_cast<size_t>(batch.logits[i]);
    }
    EXPECT_EQ(llama_decode(context.get(), batch), 0);
    const float* all = llama_get_logits(context.get());
    logits.insert(logits.end(), all, all + wanted * width);
    llama_batch_free(batch);
  }
  return logits;
}

std::vector<float> OurLogits(Model& model, const std::vector<TokenId>& tokens,
                             const Judged& judged, size_t chunk) {
  const SequenceBlocks blocks(model, static_cast<TokenPos>(tokens.size()));
  const std::vector<StepSequence> sequences = {blocks.View()};
  std::vector<float> logits;
  for (size_t start = 0; start < judged.count; start += chunk) {
    std::vector<StepRow> rows;
    for (size_t i = start; i < std::min(start + chunk, judged.count); ++i) {
      rows.push_back(
          {tokens[i], static_cast<TokenPos>(i), 0, i >= judged.first});
    }
    const auto step = model.Step({rows, sequences});
    EXPECT_TRUE(step.ok()) << step.status();
    logits.insert(logits.end(), step->begin(), step->end());
  }
  return logits;
}

// Logits of the oracle's two ways differ by about 0.1 (KL 3e-3 to 6e-3), a
// difference of two by 0.15: a lead of more than three times that is no
// toss-up.
constexpr float kClearLead = 0.5f;

struct Agreement {
  double top1 = 0.0;  // share of positions
  // The same where the expected top token leads by kClearLead.
  double clear_top1 = 0.0;
  size_t clear = 0;      // positions of that kind
  double mean_kl = 0.0;  // of ours from the oracle's, in nats
  double max_kl = 0.0;
};

Agreement Compare(const std::vector<float>& expected,
                  const std::vector<float>& actual, size_t width) {
  Agreement agreement;
  const size_t count = expected.size() / width;
  for (size_t i = 0; i < count; ++i) {
    const auto p = absl::MakeConstSpan(expected).subspan(i * width, width);
    const auto q = absl::MakeConstSpan(actual).subspan(i * width, width);
    const double kl = LogitKl(p, q);
    agreement.mean_kl += kl / static_cast<double>(count);
    agreement.max_kl = std::max(agreement.max_kl, kl);
    const size_t best = TopToken(p);
    const bool same = best == TopToken(q);
    agreement.top1 += same ? 1.0 / static_cast<double>(count) : 0.0;
    const bool clear = std::count_if(p.begin(), p.end(), [&](float value) {
                         return value > p[best] - kClearLead;
                       }) == 1;
    agreement.clear += clear ? 1 : 0;
    agreement.clear_top1 += clear && same ? 1.0 : 0.0;
  }
  agreement.clear_top1 /= static_cast<double>(agreement.clear);
  return agreement;
}

class OracleTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = ModelPath(GetParam());
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << path_ << " is not there";
    }
    auto vocabulary = Vocabulary::Load(path_);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    auto tokens = (*vocabulary)->Tokenize(TestText(), {});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    tokens_ = *std::move(tokens);
  }

  void Load() {
    auto model = Model::Load(path_, {.num_threads = kThreads});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  void Print(const Judged& judged, const char* pair,
             const Agreement& agreement) const {
    std::printf(
        "%s, positions %zu to %zu, %s: top-1 %.2f %%, with a clear lead "
        "%.2f %% of %zu, KL mean %.2e max %.2e\n",
        GetParam().c_str(), judged.first, judged.count, pair,
        100.0 * agreement.top1, 100.0 * agreement.clear_top1, agreement.clear,
        agreement.mean_kl, agreement.max_kl);
  }

  // Every product with quantised weights rounds its inputs to eight bits, so
  // that libllama differs from itself when it computes attention in another
  // order, and from what the weights say by as much. Ours must be as near to
  // what the weights say as libllama's two ways are: the same numbers as f32
  // weights, whose products round no inputs.
  void ExpectAgreement(const Judged& judged, size_t chunk) {
    ASSERT_GE(tokens_.size(), judged.count);
    ASSERT_NO_FATAL_FAILURE(Load());
    const size_t width = model_->info().vocab_size;
    const TempDir dir;
    const std::string f32 = dir.File("f32.gguf");
    const absl::Status written = WriteF32Gguf(path_, f32);
    ASSERT_TRUE(written.ok()) << written;
    const std::vector<float> exact = OracleLogits(f32, tokens_, judged, false);
    const std::vector<float> plain =
        OracleLogits(path_, tokens_, judged, false);
    const std::vector<float> flash = OracleLogits(path_, tokens_, judged, true);
    const std::vector<float> ours = OurLogits(*model_, tokens_, judged, chunk);
    Print(judged, "oracle's two ways", Compare(plain, flash, width));
    Print(judged, "ours and plain", Compare(plain, ours, width));
    Print(judged, "ours and flash", Compare(flash, ours, width));
    const Agreement of_plain = Compare(exact, plain, width);
    const Agreement of_flash = Compare(exact, flash, width);
    const Agreement of_ours = Compare(exact, ours, width);
    Print(judged, "f32 weights and plain", of_plain);
    Print(judged, "f32 weights and flash", of_flash);
    Print(judged, "f32 weights and ours", of_ours);
    // Three standard errors of the difference of two shares.
    const double count = static_cast<double>(judged.count - judged.first);
    const double top1 = std::min(of_plain.top1, of_flash.top1);
    EXPECT_GE(of_ours.top1,
              top1 - 3.0 * std::sqrt(2.0 * top1 * (1.0 - top1) / count));
    EXPECT_GE(of_ours.clear_top1,
              std::min(of_plain.clear_top1, of_flash.clear_top1) - 0.02);
    EXPECT_GT(of_ours.clear, (judged.count - judged.first) / 4);
    EXPECT_LT(of_ours.mean_kl,
              1.2 * std::max(of_plain.mean_kl, of_flash.mean_kl));
  }

  std::string path_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<Model> model_;
};

TEST_P(OracleTest, LogitsOfAPromptAgree) {
  ExpectAgreement({.first = 256, .count = 512}, 512);
}

// Beyond the 512 positions of Gemma's window, in steps of another size.
TEST_P(OracleTest, LogitsBeyondTheWindowAgree) {
  ExpectAgreement({.first = 600, .count = 760}, 200);
}

// The same numbers without the rounding of inputs to eight bits: what is left
// is f16 KV and the order of sums.
TEST_P(OracleTest, LogitsWithWeightsInF32AgreeClosely) {
  const TempDir dir;
  const std::string f32 = dir.File("f32.gguf");
  const absl::Status written = WriteF32Gguf(path_, f32);
  ASSERT_TRUE(written.ok()) << written;
  path_ = f32;
  ASSERT_NO_FATAL_FAILURE(Load());
  const Judged judged = {.first = 0, .count = 512};
  ASSERT_GE(tokens_.size(), judged.count);
  const size_t width = model_->info().vocab_size;
  const std::vector<float> ours = OurLogits(*model_, tokens_, judged, 512);
  for (const bool flash : {false, true}) {
    const Agreement agreement =
        Compare(OracleLogits(path_, tokens_, judged, flash), ours, width);
    Print(judged, flash ? "f32, ours and flash" : "f32, ours and plain",
          agreement);
    EXPECT_GE(agreement.top1, 0.995);
    // 2e-6 at most was measured.
    EXPECT_LT(agreement.mean_kl, 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OracleTest,
                         testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf",
                                         "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "SmolLM2"
                                                              : "Gemma3");
                         });

}  // namespace
}  // namespace everwarm::models
