#include "cli/kv_config.h"

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace everwarm::cli {
namespace {

using nlohmann::json;

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

absl::StatusOr<models::LayerScheme> ReadLayer(const json& layer,
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
  EW_ASSIGN_OR_RETURN(
      const uint32_t group,
      Number(layer, where, "group_size", models::kUsualAffineGroup, {32, 64}));
  return models::AffineScheme(bits, group);
}

// A layer's keys, and "tokens".
absl::StatusOr<models::FirstTokens> ReadFirst(json first,
                                              const std::string& where) {
  models::FirstTokens result;
  if (const auto found = first.find("tokens"); found != first.end()) {
    if (found->is_number_unsigned() &&
        found->get<uint64_t>() <= models::kMaxFirstTokens) {
      result.tokens = found->get<uint32_t>();
    }
    if (result.tokens == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": \"tokens\" is ", found->dump(),
                       ", not from 1 to ", models::kMaxFirstTokens));
    }
    first.erase(found);
  } else if (first.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": \"tokens\" is missing"));
  }
  EW_ASSIGN_OR_RETURN(result.scheme, ReadLayer(first, where));
  return result;
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

absl::StatusOr<std::map<uint32_t, models::LayerScheme>> ReadLayers(
    const json& layers, const std::string& path) {
  if (!layers.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": \"layers\" is not an object"));
  }
  std::map<uint32_t, models::LayerScheme> schemes;
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

absl::StatusOr<models::KvScheme> ReadKvScheme(const std::string& text) {
  if (!absl::EndsWith(text, ".json")) return models::KvScheme::Parse(text);
  EW_ASSIGN_OR_RETURN(const json config, ReadJson(text));
  models::LayerScheme usual;
  std::map<uint32_t, models::LayerScheme> layers;
  models::FirstTokens first;
  for (const auto& [key, value] : config.items()) {
    if (key == "default") {
      EW_ASSIGN_OR_RETURN(usual,
                          ReadLayer(value, absl::StrCat(text, ", default")));
    } else if (key == "layers") {
      EW_ASSIGN_OR_RETURN(layers, ReadLayers(value, text));
    } else if (key == "first") {
      EW_ASSIGN_OR_RETURN(first,
                          ReadFirst(value, absl::StrCat(text, ", first")));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": unknown key \"", key,
                       "\"; there are \"default\", \"layers\" and \"first\""));
    }
  }
  return models::KvScheme::ByLayer(std::move(usual), std::move(layers),
                                   std::move(first));
}

}  // namespace everwarm::cli
