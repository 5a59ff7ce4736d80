// Every architecture, as small random f32 models, against libllama. Without
// quantised weights, and with the oracle's keys and values in f32, the two
// differ by the rounding of our keys and values to f16 and the order of sums.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "llama.h"
#include "models/model.h"
#include "testing/logit_distance.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_architectures.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_variants.h"

namespace everwarm::models {
namespace {

constexpr size_t kTokens = 300;
constexpr size_t kVocabulary = TinyGguf::kVocabulary;
// Longest sequence unless a test says otherwise.
constexpr uint32_t kContext = 512;

std::vector<TokenId> Tokens() {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i + 3 * i) % kVocabulary));
  }
  return tokens;
}

struct LlamaFree {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

// Logits of all positions by libllama, computed in one step.
std::vector<float> OracleLogits(const std::string& path,
                                uint32_t context_tokens = kContext) {
  const std::unique_ptr<llama_model, LlamaFree> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (model == nullptr) {
    return {};
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context_tokens;
  params.n_batch = kContext;
  params.n_ubatch = kContext;
  params.n_threads = 1;
  params.n_threads_batch = 1;
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
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
  std::vector<float> all(logits, logits + kTokens * kVocabulary);
  llama_batch_free(batch);
  return all;
}

// Logits of all positions by our model, in steps of `chunk`.
std::vector<float> OurLogits(Model& model, size_t chunk) {
  const SequenceBlocks blocks(model, kTokens);
  const std::vector<TokenId> tokens = Tokens();
  std::vector<float> ours;
  for (size_t start = 0; start < kTokens; start += chunk) {
    const auto step = StepOnce(
        model, blocks, absl::MakeConstSpan(tokens).subspan(start, chunk),
        static_cast<TokenPos>(start), Wanted::kAll);
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) {
      return {};
    }
    ours.insert(ours.end(), step->begin(), step->end());
  }
  return ours;
}

// In units of how far the largest and the smallest logit of a position are
// apart.
constexpr double kBound = 2e-3;

struct Distance {
  // Largest difference of a logit, in the same units.
  double largest = 0.0;
  // Positions where that is beyond the bound.
  size_t beyond = 0;
  // Positions whose most likely token leads by more than the bound; and those
  // of them where ours is another.
  size_t clear_tops = 0;
  size_t wrong_tops = 0;
};

Distance DistanceOf(const std::vector<float>& expected,
                    const std::vector<float>& ours, double bound = kBound) {
  Distance distance;
  for (size_t i = 0; i < kTokens; ++i) {
    const auto p =
        absl::MakeConstSpan(expected).subspan(i * kVocabulary, kVocabulary);
    const auto q =
        absl::MakeConstSpan(ours).subspan(i * kVocabulary, kVocabulary);
    double largest = 0.0;
    for (size_t t = 0; t < kVocabulary; ++t) {
      // Keeps a NaN.
      const double difference = std::abs(double{p[t]} - double{q[t]});
      largest = difference <= largest ? largest : difference;
    }
    std::vector<float> sorted(p.begin(), p.end());
    std::sort(sorted.begin(), sorted.end());
    const double spread = double{sorted.back()} - double{sorted.front()};
    const double lead = double{sorted.back()} - double{sorted.end()[-2]};
    largest /= spread;
    distance.largest = largest <= distance.largest ? distance.largest : largest;
    distance.beyond += largest < bound ? 0 : 1;
    if (lead > bound * spread) {
      ++distance.clear_tops;
      distance.wrong_tops += TopToken(p) == TopToken(q) ? 0 : 1;
    }
  }
  return distance;
}

class TinyOracleTest : public testing::Test {
 protected:
  // As one step, in steps of 7 and one by one.
  void ExpectAgreement(const TinyGguf& tiny, const std::string& name,
                       uint32_t context = kContext) {
    const std::string path = dir_.File("tiny.gguf");
    ASSERT_TRUE(tiny.Write(path));
    const std::vector<float> expected = OracleLogits(path, context);
    ASSERT_EQ(expected.size(), kTokens * kVocabulary);
    const auto model =
        Model::Load(path, {.block_tokens = 16, .context = context});
    ASSERT_TRUE(model.ok()) << model.status();
    for (const size_t chunk : {kTokens, size_t{7}, size_t{1}}) {
      const std::vector<float> ours = OurLogits(**model, chunk);
      ASSERT_EQ(ours.size(), expected.size());
      const Distance distance = DistanceOf(expected, ours);
      std::printf("%s, steps of %zu: largest difference %.1e of the spread\n",
                  name.c_str(), chunk, distance.largest);
      EXPECT_EQ(distance.beyond, 0u) << name << ", steps of " << chunk;
      EXPECT_EQ(distance.wrong_tops, 0u) << name << ", steps of " << chunk;
    }
  }

  const TempDir dir_;
};

class TinyArchitectureTest
    : public TinyOracleTest,
      public testing::WithParamInterface<TinyArchitecture> {};
INSTANTIATE_TEST_SUITE_P(All, TinyArchitectureTest,
                         testing::ValuesIn(TinyArchitectures()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Variants, TinyArchitectureTest,
                         testing::ValuesIn(TinyVariants()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TinyArchitectureTest, AgreesWithTheOracle) {
  ExpectAgreement(GetParam().make(GGML_TYPE_F32), GetParam().name);
}

// A row's bits are its own for quantised weights, whatever the step has.
TEST_P(TinyArchitectureTest, StepSizeDoesNotChangeABitOfRowIndependentTypes) {
  const std::string path = dir_.File("tiny.gguf");
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                               GGML_TYPE_Q5_1, GGML_TYPE_Q8_0}) {
    ASSERT_TRUE(GetParam().make(type).Write(path));
    const auto model = Model::Load(path, {});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE((*model)->info().row_independent) << ggml_type_name(type);
    const std::vector<float> whole = OurLogits(**model, kTokens);
    for (const size_t chunk : {1, 4, 7, 90}) {
      EXPECT_TRUE(OurLogits(**model, chunk) == whole)
          << ggml_type_name(type) << " in steps of " << chunk;
    }
  }
}

TEST_F(TinyOracleTest, LlamaWithBiasesAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  for (const char* layer : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output",
                             "ffn_gate", "ffn_up", "ffn_down"}) {
      tiny.AddBiasOf(std::string(layer) + name);
    }
  }
  ExpectAgreement(tiny, "llama with biases");
}

TEST_F(TinyOracleTest, LlamaWithItsOwnHeadAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.AddMatrix("output", 64, 96);
  ExpectAgreement(tiny, "llama with its own head");
}

TEST_F(TinyOracleTest, LlamaWithRopeFactorsAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.tensors["rope_freqs.weight"] = {GGML_TYPE_F32, {16}, 3.0f, 0.5f};
  ExpectAgreement(tiny, "llama with rope factors");
}

TEST_F(TinyOracleTest, LlamaWithLinearRopeScalingAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.strings["llama.rope.scaling.type"] = "linear";
  tiny.floats["llama.rope.scaling.factor"] = 4.0f;
  tiny.floats["llama.rope.freq_base"] = 500000.0f;
  ExpectAgreement(tiny, "llama with linear rope scaling");
}

TEST_F(TinyOracleTest, LlamaWithYarnAgrees) {
  TinyGguf tiny = TinyGguf::Llama();
  tiny.strings["llama.rope.scaling.type"] = "yarn";
  tiny.floats["llama.rope.scaling.factor"] = 4.0f;
  tiny.floats["llama.rope.scaling.attn_factor"] = 1.1f;
  tiny.uints["llama.rope.scaling.original_context_length"] = 512;
  ExpectAgreement(tiny, "llama with yarn");
}

TEST_F(TinyOracleTest, Gemma3WithScalingAndSoftcapAgrees) {
  TinyGguf tiny = TinyGguf::Gemma3();
  tiny.floats["gemma3.final_logit_softcapping"] = 3.0f;
  tiny.floats["gemma3.rope.scaling.factor"] = 8.0f;
  tiny.floats["gemma3.rope.freq_base"] = 1000000.0f;
  tiny.floats["gemma3.rope.freq_base_swa"] = 20000.0f;
  ExpectAgreement(tiny, "gemma3 with scaling and softcap");
}

TEST_F(TinyOracleTest, Gemma3WithoutWindowsIsOneGroupAndAgrees) {
  TinyGguf tiny = TinyGguf::Gemma3();
  tiny.uints.erase("gemma3.attention.sliding_window");
  tiny.floats["gemma3.rope.freq_base_swa"] = 10000.0f;
  ExpectAgreement(tiny, "gemma3 without windows");
  const auto model = Model::Load(dir_.File("tiny.gguf"), {});
  ASSERT_EQ((*model)->groups().size(), 1u);
  EXPECT_EQ((*model)->groups()[0].window, 0u);
}

// A window that nothing gets out of is as good as none, which the oracle can
// judge; the other is the oracle's.
TEST_F(TinyOracleTest, WindowsOfSeveralSizesAreGroupsAndAgree) {
  const std::string path = dir_.File("several.gguf");
  TinyGguf tiny = TinyGguf::Gemma3(5);
  tiny.floats["gemma3.rope.freq_base_swa"] = 10000.0f;
  tiny.uints.erase("gemma3.attention.sliding_window_pattern");
  tiny.int_arrays["gemma3.attention.sliding_window_pattern"] = {1, 0, 0, 1, 0};
  ASSERT_TRUE(tiny.Write(path));
  const std::vector<float> expected = OracleLogits(path);
  ASSERT_FALSE(expected.empty());
  tiny.uints.erase("gemma3.attention.sliding_window");
  tiny.int_arrays["gemma3.attention.sliding_window_pattern"] = {1, 1, 0, 1, 1};
  tiny.int_arrays["gemma3.attention.sliding_window"] = {16, 400, 0, 16, 400};
  ASSERT_TRUE(tiny.Write(path));
  const auto model = Model::Load(path, {.block_tokens = 16});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<ModelGroup>& groups = (*model)->groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "full");
  EXPECT_EQ(groups[1].name, "window16");
  EXPECT_EQ(groups[1].layers, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(groups[2].name, "window400");
  EXPECT_EQ(groups[2].window, 400u);
  EXPECT_EQ(groups[2].layers, (std::vector<uint32_t>{1, 4}));
  for (const size_t chunk : {kTokens, size_t{7}}) {
    const Distance distance = DistanceOf(expected, OurLogits(**model, chunk));
    EXPECT_EQ(distance.beyond, 0u);
    EXPECT_EQ(distance.wrong_tops, 0u);
  }
}

// Phi 3's factors for long contexts, chosen by the longest sequence.
TEST_F(TinyOracleTest, Phi3ForLongContextsAgrees) {
  const TinyGguf tiny = TinyPhi3(GGML_TYPE_F32);
  ExpectAgreement(tiny, "phi3 for long contexts", 2048);
  const std::string path = dir_.File("tiny.gguf");
  const auto variant = [&](uint32_t context) {
    const auto model = Model::Load(path, {.context = context});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->info().variant;
  };
  EXPECT_EQ(variant(1024), "rope-short");
  EXPECT_EQ(variant(1025), "rope-long");
  EXPECT_EQ(variant(0), "rope-long");
}

// Experts as the published files have them.
TEST_F(TinyOracleTest, ExpertsInMxfp4AgreeOnTheMostLikelyToken) {
  const std::string path = dir_.File("tiny.gguf");
  TinyGguf tiny = TinyGptOss(GGML_TYPE_F32);
  for (auto& [name, tensor] : tiny.tensors) {
    if (absl::EndsWith(name, "_exps.weight")) {
      tensor.type = GGML_TYPE_MXFP4;
    }
  }
  ASSERT_TRUE(tiny.Write(path));
  const auto model = Model::Load(path, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> expected = OracleLogits(path);
  ASSERT_FALSE(expected.empty());
  // Inputs are rounded to eight bits before each product (decision 0001).
  const Distance distance =
      DistanceOf(expected, OurLogits(**model, kTokens), 0.1);
  EXPECT_EQ(distance.wrong_tops, 0u);
  EXPECT_GT(distance.clear_tops, kTokens / 6);
}

// The bound would notice: a window of one position less is another model.
TEST_F(TinyOracleTest, AWindowOfOneLessWouldBeSeen) {
  const std::string path = dir_.File("other.gguf");
  TinyGguf tiny = TinyGguf::Gemma3();
  ASSERT_TRUE(tiny.Write(path));
  const std::vector<float> of_16 = OracleLogits(path);
  tiny.uints["gemma3.attention.sliding_window"] = 15;
  ASSERT_TRUE(tiny.Write(path));
  EXPECT_GT(DistanceOf(of_16, OracleLogits(path)).largest, 10 * kBound);
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

// Whatever the codec: what a step reads was coded by whichever step wrote it.
TEST_F(TinyOracleTest, StepSizeDoesNotChangeABitOfCodedKv) {
  const std::string path = dir_.File("tiny.gguf");
  const std::vector<TokenId> tokens = Tokens();
  ASSERT_TRUE(TinyGguf::Llama(2, GGML_TYPE_Q8_0).Write(path));
  std::vector<std::pair<std::string, KvScheme>> schemes;
  for (const char* kv : {"f16", "q8", "q4", "turbo", "turbo:k4v5", "q8+f16:64",
                         "turbo+q8:100", "q8+turbo:64"}) {
    const auto scheme = KvScheme::Parse(kv);
    ASSERT_TRUE(scheme.ok()) << scheme.status();
    schemes.emplace_back(kv, *scheme);
  }
  schemes.emplace_back("4 bits for first tokens, too",
                       KvScheme::ByLayer(AffineScheme(4), {}));
  std::vector<float> f16;
  for (const auto& [kv, scheme] : schemes) {
    const auto model = Model::Load(path, {.kv = scheme});
    ASSERT_TRUE(model.ok()) << model.status();
    const SequenceBlocks one(**model, kTokens);
    const auto whole = StepOnce(**model, one, tokens, 0, Wanted::kLast);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const std::vector<float> expected(whole->begin(), whole->end());
    const SequenceBlocks another(**model, kTokens);
    for (size_t start = 0; start < kTokens; start += 100) {
      const auto step = StepOnce(
          **model, another, absl::MakeConstSpan(tokens).subspan(start, 100),
          static_cast<TokenPos>(start), Wanted::kLast);
      ASSERT_TRUE(step.ok()) << step.status();
      if (start + 100 == kTokens) {
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
  EXPECT_EQ(groups[0].scheme.rest.name, "q8");
  EXPECT_EQ(groups[1].name, "window.q8");
  EXPECT_EQ(groups[1].layers, (std::vector<uint32_t>{0, 3, 4, 6}));
  EXPECT_EQ(groups[2].name, "window.f16");
  EXPECT_EQ(groups[2].layers, (std::vector<uint32_t>{1}));
  const SequenceBlocks blocks(**model, kTokens);
  EXPECT_TRUE(StepOnce(**model, blocks, Tokens(), 0, Wanted::kLast).ok());
}

TEST_F(TinyOracleTest, FirstTokensOfFullLayersHaveBlocksOfTheirOwn) {
  const std::string path = dir_.File("tiny.gguf");
  ASSERT_TRUE(TinyGguf::Gemma3(7).Write(path));
  const auto model = Model::Load(
      path, {.block_tokens = 32, .kv = *KvScheme::Parse("q4+f16:64")});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<ModelGroup>& groups = (*model)->groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].scheme.first.name, "f16");
  EXPECT_EQ(groups[0].scheme.rest.name, "q4");
  EXPECT_EQ(groups[0].geometry,
            BySpan<BlockGeometry>(
                2, BlockGeometry(2, 32, {{2, 64}, {2, 64}}),
                BlockGeometry(2, 32, {{2, 16}, {2, 4}, {2, 16}, {2, 4}})));
  EXPECT_EQ(groups[1].window, 16u);
  EXPECT_EQ(groups[1].scheme.first_spans, 0u);
  EXPECT_EQ(groups[1].geometry.first_spans, 0u);
}

// As long as there is nothing else, they are all there is. (Halves alone would
// not be rotated.)
TEST_F(TinyOracleTest, ASequenceOfFirstTokensHasTheBitsOfTheirCodecAlone) {
  const std::string path = dir_.File("tiny.gguf");
  ASSERT_TRUE(TinyGguf::Llama(2, GGML_TYPE_Q8_0).Write(path));
  const auto mixed = Model::Load(path, {.kv = *KvScheme::Parse("q4+q8:64")});
  const auto eight = Model::Load(path, {.kv = *KvScheme::Parse("q8")});
  ASSERT_TRUE(mixed.ok() && eight.ok());
  const std::vector<TokenId> tokens = Tokens();
  for (const size_t length : {1, 63, 64, 65}) {
    const auto some = absl::MakeConstSpan(tokens).first(length);
    const SequenceBlocks ours(**mixed, kTokens);
    const SequenceBlocks theirs(**eight, kTokens);
    const auto one = StepOnce(**mixed, ours, some, 0, Wanted::kLast);
    const auto other = StepOnce(**eight, theirs, some, 0, Wanted::kLast);
    ASSERT_TRUE(one.ok() && other.ok());
    EXPECT_EQ(*one == *other, length <= 64) << length;
  }
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
