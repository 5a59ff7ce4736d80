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
  const LayerScheme q8 = Parsed("q8").Layer(3, true);
  EXPECT_EQ(q8.name, "q8");
  EXPECT_EQ(q8.k, (kernels::PlaneCodec{Coding::kAffine, 8, 64}));
  EXPECT_EQ(q8.v, q8.k);
  EXPECT_EQ(Parsed("q4").Layer(0, false).k.bits, 4u);
}

TEST(KvSchemeTest, TurboCodesFullLayersOnly) {
  const KvScheme turbo = Parsed("turbo");
  EXPECT_EQ(turbo.Layer(0, false).name, "k8v3");
  EXPECT_EQ(turbo.Layer(0, false).v,
            (kernels::PlaneCodec{Coding::kRotated, 3, 32}));
  EXPECT_EQ(turbo.Layer(0, true), LayerScheme());
  EXPECT_TRUE(turbo.SparesWindows());
  EXPECT_EQ(Parsed("turbo:k4v2").Layer(0, false).name, "k4v2");
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
  h.v_dim = 80;
  EXPECT_THAT(std::string(Parsed("turbo").Check(h).message()),
              HasSubstr("the model's have 80"));
  EXPECT_TRUE(Parsed("q8").Check(h).ok());
  h.v_dim = 128;
  EXPECT_TRUE(Parsed("turbo").Check(h).ok());
}

}  // namespace
}  // namespace everwarm::models
