#include "models/kv_scheme.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/hyperparameters.h"

namespace everwarm::models {
namespace {

using kernels::Coding;
using testing::HasSubstr;

KvScheme Parsed(const std::string& text) {
  const auto scheme = KvScheme::Parse(text);
  EXPECT_TRUE(scheme.ok()) << scheme.status();
  return scheme.ok() ? *scheme : KvScheme();
}

std::string Error(const std::string& text) {
  const auto scheme = KvScheme::Parse(text);
  return scheme.ok() ? "" : std::string(scheme.status().message());
}

TEST(KvSchemeTest, NamesOfCodecsAreUnderstood) {
  EXPECT_EQ(Parsed("f16").Layer(0, false), LayerScheme());
  const LayerScheme q8 = Parsed("q8").Layer(3, false);
  EXPECT_EQ(q8.name, "q8");
  EXPECT_EQ(q8.k, (kernels::PlaneCodec{Coding::kAffine, 8, 64}));
  EXPECT_EQ(q8.v, q8.k);
  EXPECT_EQ(Parsed("q4").Layer(0, false).k.bits, 4u);
}

TEST(KvSchemeTest, OnlyLayersThatSeeTheWholeContextAreCoded) {
  for (const char* name : {"q8", "q4", "turbo", "q4+f16:64"}) {
    EXPECT_EQ(Parsed(name).Layer(0, true), LayerScheme()) << name;
    EXPECT_TRUE(Parsed(name).SparesWindows()) << name;
  }
  EXPECT_FALSE(Parsed("f16").SparesWindows());
  // A file says what it says.
  const KvScheme by_layer = KvScheme::ByLayer(AffineScheme(4), {});
  EXPECT_EQ(by_layer.Layer(0, true), AffineScheme(4));
  EXPECT_FALSE(by_layer.SparesWindows());
}

TEST(KvSchemeTest, TurboIsAffineKeysAndNormalValues) {
  const KvScheme turbo = Parsed("turbo");
  EXPECT_EQ(turbo.Layer(0, false).name, "k8v3");
  EXPECT_EQ(turbo.Layer(0, false).v,
            (kernels::PlaneCodec{Coding::kNormal, 3, 32}));
  EXPECT_EQ(Parsed("turbo:k4v2").Layer(0, false).name, "k4v2");
}

TEST(KvSchemeTest, FirstTokensMayHaveAnotherCodec) {
  const KvScheme mixed = Parsed("q4+f16:64");
  EXPECT_EQ(mixed.first().tokens, 64u);
  EXPECT_EQ(mixed.first().scheme, LayerScheme());
  const BySpan<LayerScheme> layer = mixed.LayerBySpan(0, false, 32);
  EXPECT_EQ(layer.first_spans, 2u);
  EXPECT_EQ(layer.At(1).name, "f16");
  EXPECT_EQ(layer.At(2).name, "q4");
  // What is behind the last colon is the count.
  const KvScheme turbo = Parsed("q8+turbo:k4v2:100");
  EXPECT_EQ(turbo.first().scheme.name, "k4v2");
  EXPECT_EQ(turbo.first().tokens, 100u);
  EXPECT_EQ(Parsed("turbo+turbo:k8v5:1").Layer(0, false).name, "k8v3");
  EXPECT_EQ(Parsed("q4+turbo:7").first().scheme.name, "k8v3");
}

TEST(KvSchemeTest, TheFirstTileOfFourBitsIsHalvesUnlessSomebodySaysOtherwise) {
  EXPECT_EQ(Parsed("q4").LayerBySpan(0, false, 64),
            Parsed("q4+f16:64").LayerBySpan(0, false, 64));
  EXPECT_EQ(Parsed("q4+q8:128").first().scheme.name, "q8");
  EXPECT_EQ(Parsed("q8").first().tokens, 0u);
  EXPECT_EQ(Parsed("turbo:k4v4").first().tokens, 0u);
  EXPECT_EQ(KvScheme::ByLayer(AffineScheme(4), {}).first().tokens, 0u);
  // Nobody asked for it, so a model that has no use for it is not refused.
  Hyperparameters h;
  h.num_layers = 1;
  h.v_dim = 64;
  h.windows = {16};
  h.recurrent = {false};
  EXPECT_TRUE(Parsed("q4").Check(h).ok());
}

TEST(KvSchemeTest, FirstTokensAreWholeBlocksAndTiles) {
  EXPECT_EQ(FirstSpans(1, 16), 4u);
  EXPECT_EQ(FirstSpans(64, 16), 4u);
  EXPECT_EQ(FirstSpans(65, 16), 8u);
  EXPECT_EQ(FirstSpans(65, 64), 2u);
  EXPECT_EQ(FirstSpans(65, 256), 1u);
  EXPECT_EQ(FirstSpans(kMaxFirstTokens, 16), kMaxFirstTokens / 16);
}

TEST(KvSchemeTest, LayersWithoutNeedOfItHaveNoFirstTokens) {
  // A window passes over its first tokens like over others.
  EXPECT_EQ(Parsed("q4+f16:64").LayerBySpan(0, true, 64),
            BySpan<LayerScheme>());
  const KvScheme scheme = KvScheme::ByLayer(
      AffineScheme(4), {{1, LayerScheme()}}, {64, LayerScheme()});
  EXPECT_EQ(scheme.LayerBySpan(0, false, 64).first_spans, 1u);
  EXPECT_EQ(scheme.LayerBySpan(1, false, 64), BySpan<LayerScheme>());
}

TEST(KvSchemeTest, FirstTokensThatChangeNothingAreRefused) {
  Hyperparameters h;
  h.num_layers = 2;
  h.v_dim = 64;
  h.windows = {0, 16};
  h.recurrent = {false, false};
  EXPECT_TRUE(Parsed("q4+f16:64").Check(h).ok());
  EXPECT_THAT(std::string(Parsed("q4+q4:64").Check(h).message()),
              HasSubstr("the first 64 tokens are to be kept in q4, but so are "
                        "all others"));
  h.windows = {16, 16};
  EXPECT_THAT(std::string(Parsed("q4+f16:64").Check(h).message()),
              HasSubstr("none of the model's layers sees the whole context"));
  h.windows = {0, 16};
  h.recurrent = {true, false};
  EXPECT_FALSE(Parsed("q4+f16:64").Check(h).ok());
  h.recurrent = {false, false};
  h.v_dim = 84;
  EXPECT_THAT(std::string(Parsed("q4+turbo:64").Check(h).message()),
              HasSubstr("the model's have 84"));
  h.v_dim = 64;
  h.latent = true;
  EXPECT_TRUE(Parsed("q4+f16:64").Check(h).ok());
  EXPECT_THAT(std::string(Parsed("q4+turbo:64").Check(h).message()),
              HasSubstr("one latent for both"));
}

TEST(KvSchemeTest, WhatIsWrongOfFirstTokensIsNamed) {
  for (const char* text :
       {"q4+", "q4+f16", "q4+f16:", "q4+f16:0", "q4+f16:-1", "q4+f16:x",
        "q4+f16:1048577", "q4+f16:99999999999", "q4+:64", "+f16:64", "q4+q5:64",
        "q4+f16:64+q8:64", "q4+turbo:k3v3:64", "q4 +f16:64"}) {
    EXPECT_FALSE(KvScheme::Parse(text).ok()) << text;
  }
  EXPECT_THAT(Error("q4+f16:0"), HasSubstr("1 to 1048576 first tokens"));
  EXPECT_THAT(Error("q4+q5:64"), HasSubstr("'q5'"));
}

TEST(KvSchemeTest, UnknownNamesAreRefusedWithWhatThereIs) {
  for (const char* text : {"", "q5", "F16", "turbo:", "turbo8", "turbo:k3v3",
                           "turbo:k8v6", "turbo:k8v33", "turbok8v3"}) {
    EXPECT_FALSE(KvScheme::Parse(text).ok()) << text;
  }
  EXPECT_THAT(Error("q5"), HasSubstr("f16, q8, q4, turbo[:kKvV]"));
  EXPECT_THAT(Error("turbo:k8v6"), HasSubstr("2, 3, 4, 5 or 8 for V"));
}

TEST(KvSchemeTest, LayersThatAModelDoesNotHaveAreRefused) {
  Hyperparameters h;
  h.num_layers = 2;
  h.v_dim = 64;
  const KvScheme scheme = KvScheme::ByLayer({}, {{2, AffineScheme(8)}});
  EXPECT_THAT(std::string(scheme.Check(h).message()), HasSubstr("layer 2"));
  h.num_layers = 3;
  h.recurrent.assign(h.num_layers, false);
  EXPECT_TRUE(scheme.Check(h).ok());
}

TEST(KvSchemeTest, TurboNeedsHeadsThatCanBeRotated) {
  Hyperparameters h;
  h.num_layers = 1;
  h.v_dim = 84;
  EXPECT_THAT(std::string(Parsed("turbo").Check(h).message()),
              HasSubstr("the model's have 84"));
  EXPECT_TRUE(Parsed("q8").Check(h).ok());
  EXPECT_TRUE(Parsed("q4").Check(h).ok());
  h.v_dim = 80;
  EXPECT_TRUE(Parsed("turbo").Check(h).ok());
}

TEST(KvSchemeTest, HeadsAreTurnedInPartsThatFitThem) {
  Hyperparameters h;
  h.k_dim = 192;
  h.v_dim = 128;
  EXPECT_EQ(RotationOf(h, Parsed("q4").Layer(0, false)), (Rotation{64, 128}));
  EXPECT_EQ(RotationOf(h, Parsed("turbo").Layer(0, false)),
            (Rotation{64, 128}));
  EXPECT_EQ(RotationOf(h, LayerScheme()), Rotation());
  // Queries meet the first tokens and the others.
  EXPECT_EQ(RotationOf(h, Parsed("q4+f16:64").LayerBySpan(0, false, 64)),
            (Rotation{64, 128}));
  EXPECT_EQ(RotationOf(h, Parsed("f16+q8:64").LayerBySpan(0, false, 64)),
            (Rotation{64, 128}));
  h.k_dim = 84;
  EXPECT_EQ(RotationOf(h, Parsed("q4").Layer(0, false)), (Rotation{0, 128}));
  // Values that lie in keys are turned with them.
  h.latent = true;
  h.k_dim = 576;
  h.v_dim = 512;
  EXPECT_EQ(RotationOf(h, Parsed("q4").Layer(0, false)), (Rotation{64, 64}));
}

}  // namespace
}  // namespace everwarm::models
