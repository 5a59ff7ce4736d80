// Groups of recurrent and latent layers: their bytes, and files that say
// something else than what runs here.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_hybrids.h"
#include "testing/tiny_latent.h"

namespace everwarm::models {
namespace {

using ::testing::HasSubstr;

class StateGroupsTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Model>> Load(TinyGguf tiny,
                                              const KvScheme& kv = {}) {
    const std::string path = dir_.File("tiny.gguf");
    EXPECT_TRUE(tiny.Write(path));
    return Model::Load(path, {.block_tokens = 32, .kv = kv});
  }
  std::vector<ModelGroup> Groups(const TinyGguf& tiny) {
    const auto model = Load(tiny);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->groups() : std::vector<ModelGroup>();
  }
  void ExpectRefused(TinyGguf tiny,
                     const std::function<void(TinyGguf&)>& change,
                     absl::StatusCode code, const std::string& words) {
    change(tiny);
    const absl::Status status = Load(tiny).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  const TempDir dir_;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

TEST_F(StateGroupsTest, AConvolutionKeepsItsLastInputs) {
  const std::vector<ModelGroup> groups = Groups(TinyLfm2(GGML_TYPE_F32));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name, "full");
  EXPECT_FALSE(groups[0].recurrent);
  EXPECT_EQ(groups[0].layers, (std::vector<uint32_t>{1, 4}));
  EXPECT_EQ(groups[1].name, "recurrent");
  EXPECT_TRUE(groups[1].recurrent);
  EXPECT_EQ(groups[1].window, 0u);
  EXPECT_EQ(groups[1].scheme.rest.name, "f32");
  EXPECT_EQ(groups[1].layers, (std::vector<uint32_t>{0, 2, 3}));
  // Two inputs of 96 channels.
  EXPECT_EQ(groups[1].geometry, BlockGeometry(3, 1, {{1, 2 * 96 * 4}}));
}

TEST_F(StateGroupsTest, ARecurrenceHasAPlaneOfItsOwn) {
  // Three inputs of 128 + 2 * 2 * 5 channels, and 8 heads of 16 by 5.
  EXPECT_EQ(Groups(TinyGraniteHybrid(GGML_TYPE_F32)).back().geometry,
            BlockGeometry(3, 1, {{1, 3 * 148 * 4}, {1, 8 * 16 * 5 * 4}}));
  // Three inputs of 192 + 2 * 3 * 32 channels, and 6 heads of 32 by 32.
  EXPECT_EQ(Groups(TinyQwen35(GGML_TYPE_F32)).back().geometry,
            BlockGeometry(4, 1, {{1, 3 * 384 * 4}, {1, 6 * 32 * 32 * 4}}));
}

TEST_F(StateGroupsTest, AModelMayHaveNoAttentionAtAll) {
  const auto model = Load(TinyGraniteHybrid(GGML_TYPE_Q8_0, kRecurrentAll));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->groups().size(), 1u);
  EXPECT_TRUE((*model)->groups()[0].recurrent);
  const std::vector<TokenId> tokens = {5, 6, 7, 8, 9};
  const SequenceBlocks one(**model, 5);
  const auto whole = StepOnce(**model, one, tokens, 0, Wanted::kLast);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<float> expected(whole->begin(), whole->end());
  const SequenceBlocks two(**model, 5);
  ASSERT_TRUE(StepOnce(**model, two, absl::MakeConstSpan(tokens).first(3), 0,
                       Wanted::kNone)
                  .ok());
  const auto rest = StepOnce(
      **model, two, absl::MakeConstSpan(tokens).subspan(3), 3, Wanted::kLast);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_TRUE(*rest == absl::MakeConstSpan(expected));
}

TEST_F(StateGroupsTest, ALatentIsStoredOnce) {
  const std::vector<ModelGroup> groups = Groups(TinyDeepSeek2(GGML_TYPE_F32));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].name, "latent");
  EXPECT_EQ(groups[0].window, 0u);
  // A rank of 32 and a rotated key of 12, in halves.
  EXPECT_EQ(groups[0].geometry, BlockGeometry(3, 32, {{1, 44 * 2}}));
}

TEST_F(StateGroupsTest, ALatentCanBeCodedButNotInTwoWays) {
  const TinyGguf tiny = TinyDeepSeek2(GGML_TYPE_Q8_0);
  const auto q8 = Load(tiny, *KvScheme::Parse("q8"));
  ASSERT_TRUE(q8.ok()) << q8.status();
  EXPECT_EQ((*q8)->groups()[0].geometry,
            BlockGeometry(3, 32, {{1, 44}, {1, 4}}));
  const std::vector<TokenId> tokens = {5, 6, 7, 8, 9};
  const SequenceBlocks blocks(**q8, 5);
  EXPECT_TRUE(StepOnce(**q8, blocks, tokens, 0, Wanted::kLast).ok());
  const absl::Status turbo = Load(tiny, *KvScheme::Parse("turbo")).status();
  EXPECT_EQ(turbo.code(), kInvalid) << turbo;
  EXPECT_THAT(std::string(turbo.message()), HasSubstr("one latent for both"));
}

TEST_F(StateGroupsTest, AStateCannotBeCoded) {
  const TinyGguf tiny = TinyLfm2(GGML_TYPE_Q8_0);
  EXPECT_TRUE(
      Load(tiny, KvScheme::ByLayer(LayerScheme(), {{1, AffineScheme(8)}}))
          .ok());
  const absl::Status status =
      Load(tiny, KvScheme::ByLayer(LayerScheme(), {{2, AffineScheme(8)}}))
          .status();
  EXPECT_EQ(status.code(), kInvalid) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer 2"));
}

TEST_F(StateGroupsTest, AbsurdSizesOfStatesAreNamed) {
  for (const char* key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
                          "ssm.time_step_rank", "ssm.group_count"}) {
    for (const uint32_t value : {0u, 0xffffffffu}) {
      ExpectRefused(
          TinyGraniteHybrid(GGML_TYPE_F32),
          [&](TinyGguf& t) {
            t.uints["granitehybrid." + std::string(key)] = value;
          },
          kInvalid, key);
    }
  }
  ExpectRefused(
      TinyGraniteHybrid(GGML_TYPE_F32),
      [](TinyGguf& t) { t.uints["granitehybrid.ssm.group_count"] = 3; },
      kInvalid, "ssm.group_count 3");
  ExpectRefused(
      TinyLfm2(GGML_TYPE_F32),
      [](TinyGguf& t) { t.uints["lfm2.shortconv.l_cache"] = 1; }, kInvalid,
      "lfm2.shortconv.l_cache");
  ExpectRefused(
      TinyQwen35(GGML_TYPE_F32),
      [](TinyGguf& t) { t.uints["qwen35.ssm.state_size"] = 16; }, kInvalid,
      "ssm.state_size");
}

TEST_F(StateGroupsTest, KindsOfLayersMustBeClear) {
  ExpectRefused(
      TinyLfm2(GGML_TYPE_F32),
      [](TinyGguf& t) {
        t.int_arrays["lfm2.attention.head_count_kv"] = {0, 1, 0, 0};
      },
      kInvalid, "4 elements for 5 layers");
  ExpectRefused(
      TinyLfm2(GGML_TYPE_F32),
      [](TinyGguf& t) {
        t.int_arrays["lfm2.attention.head_count_kv"] = {0, 1, 0, 0, 3};
      },
      kUnimplemented, "differs between layers (1, 3)");
  ExpectRefused(
      TinyQwen35(GGML_TYPE_F32),
      [](TinyGguf& t) {
        t.int_arrays["qwen35.attention.recurrent_layers"] = {1, 1, 0};
      },
      kInvalid, "3 elements for 5 layers");
}

TEST_F(StateGroupsTest, VariantsThatDoNotRunAreNamed) {
  ExpectRefused(
      TinyQwen35(GGML_TYPE_F32),
      [](TinyGguf& t) {
        t.int_arrays["qwen35.rope.dimension_sections"] = {6, 5, 4, 1};
      },
      kUnimplemented, "rope.dimension_sections");
  const TinyGguf deepseek = TinyDeepSeek2(GGML_TYPE_F32);
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) { t.uints.erase("deepseek2.attention.key_length_mla"); },
      kUnimplemented, "attn_kv_b");
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) { t.uints["deepseek2.expert_gating_func"] = 4; },
      kUnimplemented, "expert_gating_func' is 4");
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) {
        t.floats["deepseek2.attention.temperature_scale"] = 0.1f;
      },
      kUnimplemented, "temperature_scale");
}

TEST_F(StateGroupsTest, SizesOfALatentThatDoNotFitAreNamed) {
  const TinyGguf deepseek = TinyDeepSeek2(GGML_TYPE_F32);
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) {
        t.uints["deepseek2.expert_group_count"] = 3;
        t.uints["deepseek2.expert_group_used_count"] = 2;
      },
      kInvalid, "5 experts in 3 groups");
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) { t.uints["deepseek2.attention.key_length"] = 48; },
      kInvalid, "1 of 44 and 32");
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) { t.uints["deepseek2.attention.head_count_kv"] = 3; },
      kInvalid, "3 KV heads");
  ExpectRefused(
      deepseek,
      [](TinyGguf& t) { t.uints["deepseek2.attention.key_length_mla"] = 12; },
      kInvalid, "key_length_mla");
}

}  // namespace
}  // namespace everwarm::models
