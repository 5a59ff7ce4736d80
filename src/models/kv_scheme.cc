#include "models/kv_scheme.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "models/hyperparameters.h"

namespace everwarm::models {
namespace {

using kernels::Coding;

// Of keys and values in "turbo".
constexpr uint32_t kTurboGroup = 32;

LayerScheme Turbo(uint32_t k_bits, uint32_t v_bits) {
  return {absl::StrCat("k", k_bits, "v", v_bits),
          {Coding::kAffine, k_bits, kTurboGroup},
          {Coding::kRotated, v_bits, kTurboGroup}};
}

bool IsOneOf(uint32_t value, std::initializer_list<uint32_t> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// "k8v3": one digit each.
absl::StatusOr<LayerScheme> ParseTurbo(const std::string& text,
                                       absl::string_view bits) {
  if (bits.size() == 4 && bits[0] == 'k' && bits[2] == 'v') {
    const auto k = static_cast<uint32_t>(bits[1] - '0');
    const auto v = static_cast<uint32_t>(bits[3] - '0');
    if (IsOneOf(k, {2, 4, 5, 8}) && IsOneOf(v, {2, 3, 4, 5, 8})) {
      return Turbo(k, v);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "': turbo:kKvV takes 2, 4, 5 or 8 for K and 2, 3, 4, 5 or 8 "
                   "for V, such as turbo:k8v3"));
}

}  // namespace

LayerScheme AffineScheme(uint32_t bits, uint32_t group) {
  if (bits == 16) return {};
  LayerScheme scheme;
  scheme.name = absl::StrCat("q", bits);
  if (group != kUsualAffineGroup) absl::StrAppend(&scheme.name, "g", group);
  scheme.k = {Coding::kAffine, bits, group};
  scheme.v = scheme.k;
  return scheme;
}

absl::StatusOr<KvScheme> KvScheme::Parse(const std::string& text) {
  KvScheme scheme;
  if (text == "f16") return scheme;
  if (text == "q8" || text == "q4") {
    scheme.usual_ = AffineScheme(text == "q8" ? 8 : 4, kUsualAffineGroup);
    scheme.windowed_ = scheme.usual_;
    return scheme;
  }
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "turbo")) {
    if (!rest.empty() && !absl::ConsumePrefix(&rest, ":")) rest = "?";
    EW_ASSIGN_OR_RETURN(
        scheme.usual_,
        ParseTurbo(text, text == "turbo" ? absl::string_view("k8v3") : rest));
    scheme.spares_windows_ = true;
    return scheme;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "': f16, q8, q4, turbo[:kKvV] or a FILE.json is possible"));
}

KvScheme KvScheme::ByLayer(LayerScheme usual,
                           std::map<uint32_t, LayerScheme> layers) {
  KvScheme scheme;
  scheme.usual_ = std::move(usual);
  scheme.windowed_ = scheme.usual_;
  scheme.layers_ = std::move(layers);
  return scheme;
}

const LayerScheme& KvScheme::Layer(uint32_t layer, bool windowed) const {
  const auto found = layers_.find(layer);
  if (found != layers_.end()) return found->second;
  return windowed ? windowed_ : usual_;
}

absl::Status KvScheme::Check(const Hyperparameters& h) const {
  if (!layers_.empty() && layers_.rbegin()->first >= h.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layers_.rbegin()->first, " is to be coded, but the model's ",
        h.num_layers, " layers end at ", h.num_layers - 1));
  }
  for (const auto& [layer, scheme] : layers_) {
    if (h.recurrent[layer]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", layer,
          " is to be coded, but it is recurrent: it has no keys and values"));
    }
  }
  const auto apart = [](const LayerScheme& scheme) {
    return !(scheme.k == scheme.v);
  };
  if (h.latent && (apart(usual_) || std::any_of(layers_.begin(), layers_.end(),
                                                [&](const auto& layer) {
                                                  return apart(layer.second);
                                                }))) {
    return absl::InvalidArgumentError(
        "keys and values are to be coded differently, but the model's layers "
        "keep one latent for both; f16, q8 and q4 are possible");
  }
  if (usual_.v.coding == Coding::kRotated && !kernels::CanRotate(h.v_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "turbo needs value heads of a power of two from 8 to ",
        kernels::kMaxRotatedDim, " numbers; the model's have ", h.v_dim));
  }
  return absl::OkStatus();
}

}  // namespace everwarm::models
