#include "models/kv_scheme.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "kernels/attention.h"
#include "kernels/rotation.h"
#include "models/hyperparameters.h"

namespace everwarm::models {
namespace {

using kernels::Coding;

// Of keys and values in "turbo".
constexpr uint32_t kTurboGroup = 32;

LayerScheme Turbo(uint32_t k_bits, uint32_t v_bits) {
  return {absl::StrCat("k", k_bits, "v", v_bits),
          {Coding::kAffine, k_bits, kTurboGroup},
          {Coding::kNormal, v_bits, kTurboGroup}};
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

// "turbo", "turbo:k8v3" without its first five letters.
absl::StatusOr<LayerScheme> ParseRestOfTurbo(const std::string& text,
                                             absl::string_view rest) {
  if (rest.empty()) return Turbo(8, 3);
  if (!absl::ConsumePrefix(&rest, ":")) rest = "?";
  return ParseTurbo(text, rest);
}

absl::StatusOr<LayerScheme> ParseLayer(const std::string& text) {
  if (text == "f16") return LayerScheme();
  if (text == "q8") return AffineScheme(8);
  if (text == "q4") return AffineScheme(4);
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "turbo")) return ParseRestOfTurbo(text, rest);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "': f16, q8, q4, turbo[:kKvV], each with +SCHEME:N for the first N "
      "tokens, or a FILE.json is possible"));
}

// "f16:128", "turbo:k8v3:64": what is behind the last colon is the count.
absl::StatusOr<FirstTokens> ParseFirst(absl::string_view text) {
  FirstTokens first;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &first.tokens) ||
      first.tokens == 0 || first.tokens > kMaxFirstTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("'+", text, "': +SCHEME:N takes 1 to ", kMaxFirstTokens,
                     " first tokens for N, such as +f16:128"));
  }
  EW_ASSIGN_OR_RETURN(first.scheme,
                      ParseLayer(std::string(text.substr(0, colon))));
  return first;
}

// Only numbers that were turned are normal enough for it.
bool NeedsRotation(const LayerScheme& scheme) {
  return scheme.v.coding == Coding::kNormal;
}

}  // namespace

uint32_t FirstSpans(uint32_t tokens, uint32_t block_tokens) {
  const uint32_t unit = std::max(block_tokens, kernels::kCodedTokens);
  return (tokens + unit - 1) / unit * (unit / block_tokens);
}

LayerScheme AffineScheme(uint32_t bits, uint32_t group) {
  if (bits == 16) return {};
  LayerScheme scheme;
  scheme.name = absl::StrCat("q", bits);
  if (group != kUsualAffineGroup) absl::StrAppend(&scheme.name, "g", group);
  scheme.k = {Coding::kAffine, bits, group};
  scheme.v = scheme.k;
  return scheme;
}

Rotation RotationOf(const Hyperparameters& h,
                    const BySpan<LayerScheme>& scheme) {
  if (!scheme.first.k.packed() && !scheme.rest.k.packed()) return {};
  if (!h.latent) {
    return {kernels::RotatedPart(h.k_dim), kernels::RotatedPart(h.v_dim)};
  }
  const uint32_t both = kernels::RotatedPart(std::gcd(h.k_dim, h.v_dim));
  return {both, both};
}

absl::StatusOr<KvScheme> KvScheme::Parse(const std::string& text) {
  KvScheme scheme;
  const size_t plus = text.find('+');
  EW_ASSIGN_OR_RETURN(scheme.usual_, ParseLayer(text.substr(0, plus)));
  scheme.spares_windows_ = scheme.usual_.k.packed();
  if (plus != std::string::npos) {
    EW_ASSIGN_OR_RETURN(scheme.first_,
                        ParseFirst(absl::string_view(text).substr(plus + 1)));
    scheme.first_asked_ = true;
  } else if (text == "q4") {
    scheme.first_ = {kQ4FirstTokens, LayerScheme()};
  }
  return scheme;
}

KvScheme KvScheme::ByLayer(LayerScheme usual,
                           std::map<uint32_t, LayerScheme> layers,
                           FirstTokens first) {
  KvScheme scheme;
  scheme.usual_ = std::move(usual);
  scheme.windowed_ = scheme.usual_;
  scheme.layers_ = std::move(layers);
  scheme.first_ = std::move(first);
  scheme.first_asked_ = scheme.first_.tokens > 0;
  return scheme;
}

const LayerScheme& KvScheme::Layer(uint32_t layer, bool windowed) const {
  const auto found = layers_.find(layer);
  if (found != layers_.end()) return found->second;
  return windowed ? windowed_ : usual_;
}

BySpan<LayerScheme> KvScheme::LayerBySpan(uint32_t layer, bool windowed,
                                          uint32_t block_tokens) const {
  const LayerScheme& rest = Layer(layer, windowed);
  if (first_.tokens == 0 || windowed || first_.scheme == rest) return rest;
  return {FirstSpans(first_.tokens, block_tokens), first_.scheme, rest};
}

absl::Status KvScheme::CheckFirst(const Hyperparameters& h) const {
  if (!first_asked_) return absl::OkStatus();
  bool any_full = false;
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    if (h.recurrent[layer] || h.windows[layer] != 0) continue;
    any_full = true;
    if (!(Layer(layer, false) == first_.scheme)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the first ", first_.tokens, " tokens are to be kept in ",
      first_.scheme.name,
      any_full ? ", but so are all others"
               : ", but none of the model's layers sees the whole context"));
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
  if (h.latent &&
      (apart(usual_) || apart(first_.scheme) ||
       std::any_of(layers_.begin(), layers_.end(),
                   [&](const auto& layer) { return apart(layer.second); }))) {
    return absl::InvalidArgumentError(
        "keys and values are to be coded differently, but the model's layers "
        "keep one latent for both; f16, q8 and q4 are possible");
  }
  if ((NeedsRotation(usual_) || NeedsRotation(first_.scheme)) &&
      kernels::RotatedPart(h.v_dim) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "turbo needs value heads of a multiple of ", kernels::kMinRotatedPart,
        " numbers; the model's have ", h.v_dim));
  }
  return CheckFirst(h);
}

}  // namespace everwarm::models
