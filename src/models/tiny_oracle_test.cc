// Variants of the architectures, as small random f32 models, against libllama.
// Without quantised weights the two differ by little but the order of sums and
// the oracle's rounding of queries and probabilities to f16.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "llama.h"
#include "models/model.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_gguf.h"

namespace everwarm::models {
namespace {

constexpr size_t kTokens = 90;

std::vector<TokenId> Tokens() {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < kTokens; ++i) {
    tokens.push_back(
        static_cast<TokenId>((i * i + 3 * i) % TinyGguf::kVocabulary));
  }
  return tokens;
}

struct LlamaFree {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

std::vector<float> OracleLogits(const std::string& path) {
  const std::unique_ptr<llama_model, LlamaFree> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (model == nullptr) {
    return {};
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.n_threads = 1;
  params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, LlamaFree> context(
      llama_init_from_model(model.get(), params));
  const std::vector<TokenId> tokens = Tokens();
  llama_batch batch = llama_batch_init(kTokens, 0, 1);
  batch.n_tokens = kTokens;
  for (size_t i = 0; i < kTokens; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  EXPECT_EQ(llama_decode(context.get(), batch), 0);
  const float* logits = llama_get_logits(context.get());
  std::vector<float> all(logits, logits + kTokens * TinyGguf::kVocabulary);
  llama_batch_free(batch);
  return all;
}

class TinyOracleTest : public testing::Test {
 protected:
  // The largest difference of a logit, in units of their deviation.
  double Difference(const TinyGguf& tiny) {
    const std::string path = dir_.File("tiny.gguf");
    EXPECT_TRUE(tiny.Write(path));
    const auto model = Model::Load(path, {.block_tokens = 16});
    EXPECT_TRUE(model.ok()) << model.status();
    const std::vector<float> expected = OracleLogits(path);
    EXPECT_EQ(expected.size(), kTokens * TinyGguf::kVocabulary);
    if (!model.ok() || expected.empty()) {
      return 1e9;
    }
    const SequenceBlocks blocks(**model, kTokens);
    const std::vector<TokenId> tokens = Tokens();
    std::vector<float> ours;
    for (size_t start = 0; start < kTokens; start += 37) {
      const auto step = StepOnce(**model, blocks,
                                 absl::MakeConstSpan(tokens).subspan(start, 37),
                                 static_cast<TokenPos>(start), Wanted::kAll);
      EXPECT_TRUE(step.ok()) << step.status();
      ours.insert(ours.end(), step->begin(), step->end());
    }
    double largest = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max<double>(largest, std::abs(ours[i] - expected[i]));
      squares += double{expected[i]} * expected[i];
    }
    return largest / std::sqrt(squares / static_cast<double>(expected.size()));
  }

  static constexpr double kBound = 1e-2;
  const TempDir dir_;
};

TEST_F(TinyOracleTest, LlamaAgrees) {
  EXPECT_LT(Difference(TinyGguf::Llama()), kBound);
}

TEST_F(TinyOracleTest, LlamaWithBiasesAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    tiny.AddBias(prefix + "attn_q", 128);
    tiny.AddBias(prefix + "attn_k", 64);
    tiny.AddBias(prefix + "attn_v", 64);
    tiny.AddBias(prefix + "attn_output", 64);
    tiny.AddBias(prefix + "ffn_gate", 96);
    tiny.AddBias(prefix + "ffn_up", 96);
    tiny.AddBias(prefix + "ffn_down", 64);
  }
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, LlamaWithItsOwnHeadAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.AddMatrix("output", 64, 96);
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, LlamaWithRopeFactorsAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.tensors["rope_freqs.weight"] = {GGML_TYPE_F32, {16}, 3.0f, 0.5f};
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, LlamaWithLinearRopeScalingAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.strings["llama.rope.scaling.type"] = "linear";
  tiny.floats["llama.rope.scaling.factor"] = 4.0f;
  tiny.floats["llama.rope.freq_base"] = 500000.0f;
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, LlamaWithYarnAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.strings["llama.rope.scaling.type"] = "yarn";
  tiny.floats["llama.rope.scaling.factor"] = 4.0f;
  tiny.floats["llama.rope.scaling.attn_factor"] = 1.1f;
  tiny.uints["llama.rope.scaling.original_context_length"] = 512;
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, Gemma3WithinAndBeyondItsWindowAgrees) {
  EXPECT_LT(Difference(TinyGguf::Gemma3(7)), kBound);
}

TEST_F(TinyOracleTest, Gemma3WithScalingAndSoftcapAgrees) {
  TinyGguf tiny = TinyGguf::Gemma3();
  tiny.floats["gemma3.final_logit_softcapping"] = 3.0f;
  tiny.floats["gemma3.rope.scaling.factor"] = 8.0f;
  tiny.floats["gemma3.rope.freq_base"] = 1000000.0f;
  tiny.floats["gemma3.rope.freq_base_swa"] = 20000.0f;
  EXPECT_LT(Difference(tiny), kBound);
}

TEST_F(TinyOracleTest, Gemma3WithoutWindowsIsOneGroupAndAgrees) {
  TinyGguf tiny = TinyGguf::Gemma3();
  tiny.uints.erase("gemma3.attention.sliding_window");
  EXPECT_LT(Difference(tiny), kBound);
  const auto model = Model::Load(dir_.File("tiny.gguf"), {});
  ASSERT_EQ((*model)->groups().size(), 1u);
  EXPECT_EQ((*model)->groups()[0].window, 0u);
}

// The bound would notice: a window of one position less is another model.
TEST_F(TinyOracleTest, AWindowOfOneLessWouldBeSeen) {
  const std::string path = dir_.File("other.gguf");
  TinyGguf tiny = TinyGguf::Gemma3();
  ASSERT_TRUE(tiny.Write(path));
  const std::vector<float> of_16 = OracleLogits(path);
  tiny.uints["gemma3.attention.sliding_window"] = 15;
  ASSERT_TRUE(tiny.Write(path));
  const std::vector<float> of_15 = OracleLogits(path);
  double largest = 0.0;
  for (size_t i = 0; i < of_16.size(); ++i) {
    largest = std::max<double>(largest, std::abs(of_16[i] - of_15[i]));
  }
  EXPECT_GT(largest, 10 * kBound);
}

TEST_F(TinyOracleTest, GroupsDescribeTheLayers) {
  const std::string path = dir_.File("tiny.gguf");
  ASSERT_TRUE(TinyGguf::Gemma3(7).Write(path));
  const auto model = Model::Load(path, {.block_tokens = 32});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<ModelGroup>& groups = (*model)->groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name, "full");
  EXPECT_EQ(groups[0].window, 0u);
  EXPECT_EQ(groups[0].layers, (std::vector<uint32_t>{2, 5}));
  EXPECT_EQ(groups[1].name, "window");
  EXPECT_EQ(groups[1].window, 16u);
  EXPECT_EQ(groups[1].layers, (std::vector<uint32_t>{0, 1, 3, 4, 6}));
  const BlockGeometry expected(2, 32, {{2, 64}, {2, 64}});
  EXPECT_EQ(groups[0].geometry, expected);
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.architecture, "gemma3");
  EXPECT_EQ(info.num_layers, 7u);
  EXPECT_EQ(info.embedding_dim, 64u);
  EXPECT_EQ(info.vocab_size, 96u);
  EXPECT_EQ(info.train_context, 2048u);
  EXPECT_FALSE(info.row_independent);
}

// Q4_0 is repacked where ggml can; its products must not depend on the batch.
TEST_F(TinyOracleTest, StepSizeDoesNotChangeABitOfRowIndependentTypes) {
  const std::string path = dir_.File("tiny.gguf");
  const std::vector<TokenId> tokens = Tokens();
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                               GGML_TYPE_Q5_1, GGML_TYPE_Q8_0}) {
    ASSERT_TRUE(TinyGguf::Llama(2, type).Write(path));
    const auto model = Model::Load(path, {});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE((*model)->info().row_independent) << ggml_type_name(type);
    std::vector<float> whole;
    for (const size_t chunk : {kTokens, size_t{1}, size_t{4}, size_t{7}}) {
      const SequenceBlocks blocks(**model, kTokens);
      std::vector<float> logits;
      for (size_t start = 0; start < kTokens; start += chunk) {
        const auto step = StepOnce(
            **model, blocks, absl::MakeConstSpan(tokens).subspan(start, chunk),
            static_cast<TokenPos>(start), Wanted::kAll);
        ASSERT_TRUE(step.ok()) << step.status();
        logits.insert(logits.end(), step->begin(), step->end());
      }
      if (whole.empty()) {
        whole = logits;
      }
      EXPECT_TRUE(logits == whole)
          << ggml_type_name(type) << " in steps of " << chunk;
    }
  }
}

// Whatever the codec: what a step reads was coded by whichever step wrote it.
TEST_F(TinyOracleTest, StepSizeDoesNotChangeABitOfCodedKv) {
  const std::string path = dir_.File("tiny.gguf");
  const std::vector<TokenId> tokens = Tokens();
  ASSERT_TRUE(TinyGguf::Llama(2, GGML_TYPE_Q8_0).Write(path));
  std::vector<float> f16;
  for (const char* kv : {"f16", "q8", "q4", "turbo", "turbo:k4v5"}) {
    const auto scheme = KvScheme::Parse(kv);
    ASSERT_TRUE(scheme.ok()) << scheme.status();
    const auto model = Model::Load(path, {.kv = *scheme});
    ASSERT_TRUE(model.ok()) << model.status();
    const SequenceBlocks one(**model, kTokens);
    const auto whole = StepOnce(**model, one, tokens, 0, Wanted::kLast);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const std::vector<float> expected(whole->begin(), whole->end());
    const SequenceBlocks another(**model, kTokens);
    for (size_t start = 0; start < kTokens; start += 9) {
      const auto step = StepOnce(**model, another,
                                 absl::MakeConstSpan(tokens).subspan(start, 9),
                                 static_cast<TokenPos>(start), Wanted::kLast);
      ASSERT_TRUE(step.ok()) << step.status();
      if (start + 9 == kTokens) {
        EXPECT_TRUE(std::equal(step->begin(), step->end(), expected.begin()))
            << kv;
      }
    }
    if (f16.empty()) {
      f16 = expected;
    } else {
      EXPECT_NE(expected, f16) << kv;
    }
  }
}

TEST_F(TinyOracleTest, LayersOfOneKindWithTwoCodecsAreTwoGroups) {
  const std::string path = dir_.File("tiny.gguf");
  ASSERT_TRUE(TinyGguf::Gemma3(7).Write(path));
  const KvScheme scheme =
      KvScheme::ByLayer(AffineScheme(8), {{1, LayerScheme()}});
  const auto model = Model::Load(path, {.kv = scheme});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<ModelGroup>& groups = (*model)->groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "full");
  EXPECT_EQ(groups[0].scheme.name, "q8");
  EXPECT_EQ(groups[1].name, "window.q8");
  EXPECT_EQ(groups[1].layers, (std::vector<uint32_t>{0, 3, 4, 6}));
  EXPECT_EQ(groups[2].name, "window.f16");
  EXPECT_EQ(groups[2].layers, (std::vector<uint32_t>{1}));
  const SequenceBlocks blocks(**model, kTokens);
  EXPECT_TRUE(StepOnce(**model, blocks, Tokens(), 0, Wanted::kLast).ok());
}

TEST_F(TinyOracleTest, LoadingReportsProgressToTheEnd) {
  const std::string path = dir_.File("tiny.gguf");
  ASSERT_TRUE(TinyGguf::Llama(2, GGML_TYPE_Q8_0).Write(path));
  std::vector<float> fractions;
  const auto model =
      Model::Load(path, {.progress = [&](float f) { fractions.push_back(f); }});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_FALSE(fractions.empty());
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.back(), 1.0f);
  EXPECT_TRUE((*model)->info().row_independent);
}

}  // namespace
}  // namespace everwarm::models
