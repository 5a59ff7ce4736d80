#include "models/kv_scheme.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "models/hyperparameters.h"
#include "nlohmann/json.hpp"

namespace everwarm::models {
namespace {

using kernels::Coding;
using nlohmann::json;

constexpr uint32_t kUsualGroup = 64;
// Of keys and values in "turbo".
constexpr uint32_t kTurboGroup = 32;

LayerScheme Affine(uint32_t bits, uint32_t group) {
  if (bits == 16) return {};
  LayerScheme scheme;
  scheme.name = absl::StrCat("q", bits);
  if (group != kUsualGroup) absl::StrAppend(&scheme.name, "g", group);
  scheme.k = {Coding::kAffine, bits, group};
  scheme.v = scheme.k;
  return scheme;
}

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

absl::StatusOr<uint32_t> Number(const json& object, const std::string& where,
                                const char* key, uint32_t otherwise,
                                std::initializer_list<uint32_t> allowed) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (found->is_number_unsigned()) {
    const auto value = found->get<uint64_t>();
    for (const uint32_t each : allowed) {
      if (each == value) return each;
    }
  }
  std::string list;
  for (const uint32_t each : allowed) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", each);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": \"", key, "\" is ", found->dump(), ", not one of ", list));
}

absl::StatusOr<LayerScheme> ReadLayer(const json& layer,
                                      const std::string& where) {
  if (!layer.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not an object"));
  }
  for (const auto& [key, value] : layer.items()) {
    if (key != "bits" && key != "group_size") {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": unknown key \"", key,
                       "\"; there are \"bits\" and \"group_size\""));
    }
  }
  EW_ASSIGN_OR_RETURN(const uint32_t bits,
                      Number(layer, where, "bits", 16, {4, 8, 16}));
  EW_ASSIGN_OR_RETURN(const uint32_t group, Number(layer, where, "group_size",
                                                   kUsualGroup, {32, 64}));
  return Affine(bits, group);
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a JSON object"));
  }
  return config;
}

absl::StatusOr<std::map<uint32_t, LayerScheme>> ReadLayers(
    const json& layers, const std::string& path) {
  if (!layers.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": \"layers\" is not an object"));
  }
  std::map<uint32_t, LayerScheme> schemes;
  for (const auto& [key, value] : layers.items()) {
    uint32_t layer = 0;
    if (!absl::SimpleAtoi(key, &layer)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": \"", key, "\" is not the number of a layer"));
    }
    EW_ASSIGN_OR_RETURN(
        schemes[layer],
        ReadLayer(value, absl::StrCat(path, ", layer ", layer)));
  }
  return schemes;
}

}  // namespace

absl::StatusOr<KvScheme> KvScheme::Parse(const std::string& text) {
  KvScheme scheme;
  if (text == "f16") return scheme;
  if (text == "q8" || text == "q4") {
    scheme.usual_ = Affine(text == "q8" ? 8 : 4, kUsualGroup);
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
  if (!absl::EndsWith(text, ".json")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': f16, q8, q4, turbo[:kKvV] or a FILE.json is possible"));
  }
  EW_ASSIGN_OR_RETURN(const json config, ReadJson(text));
  for (const auto& [key, value] : config.items()) {
    if (key == "default") {
      EW_ASSIGN_OR_RETURN(scheme.usual_,
                          ReadLayer(value, absl::StrCat(text, ", default")));
      scheme.windowed_ = scheme.usual_;
    } else if (key == "layers") {
      EW_ASSIGN_OR_RETURN(scheme.layers_, ReadLayers(value, text));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": unknown key \"", key,
                       "\"; there are \"default\" and \"layers\""));
    }
  }
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
  if (usual_.v.coding == Coding::kRotated && !kernels::CanRotate(h.v_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "turbo needs value heads of a power of two from 8 to ",
        kernels::kMaxRotatedDim, " numbers; the model's have ", h.v_dim));
  }
  return absl::OkStatus();
}

}  // namespace everwarm::models
