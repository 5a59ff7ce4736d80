#include "server/generation_options.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 16;

// The seed of the API has 64 bits, the sampler's 32; its largest value means "a
// random one" there.
std::optional<uint32_t> FoldSeed(std::optional<int64_t> seed) {
  if (!seed || *seed == -1) {
    return std::nullopt;
  }
  const auto bits = static_cast<uint64_t>(*seed);
  const auto folded = static_cast<uint32_t>(bits ^ (bits >> 32));
  constexpr uint32_t kRandom = std::numeric_limits<uint32_t>::max();
  return folded == kRandom ? kRandom - 1 : folded;
}

absl::Status ReadNumber(const Json& body, const char* name, NumberRange range,
                        float* into) {
  EW_ASSIGN_OR_RETURN(const std::optional<double> value,
                      OptionalNumber(body, name, range));
  if (value) {
    *into = static_cast<float>(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<TokenId, float>>> ReadLogitBias(
    const Json& body) {
  std::vector<std::pair<TokenId, float>> biases;
  const Json* field = FindField(body, "logit_bias");
  if (field == nullptr) {
    return biases;
  }
  if (!field->is_object()) {
    return InvalidRequest(
        absl::StrCat("'logit_bias' must be an object from token ids to "
                     "numbers, and is ",
                     Quoted(*field)),
        "logit_bias");
  }
  for (const auto& [key, value] : field->items()) {
    int32_t token = 0;
    if (!absl::SimpleAtoi(key, &token) || token < 0) {
      return InvalidRequest(absl::StrCat("'logit_bias' has the key ",
                                         Quoted(key), ", which is no token id"),
                            "logit_bias");
    }
    const double bias = value.is_number() ? value.get<double>() : 1000.0;
    if (!(bias >= -100.0 && bias <= 100.0)) {
      return InvalidRequest(
          absl::StrCat("'logit_bias' of ", token,
                       " must be a number from -100 to 100, and is ",
                       Quoted(value)),
          "logit_bias");
    }
    biases.emplace_back(token, static_cast<float>(bias));
  }
  return biases;
}

}  // namespace

absl::StatusOr<engine::SamplingParams> ReadSampling(const Json& body) {
  engine::SamplingParams params;
  EW_RETURN_IF_ERROR(
      ReadNumber(body, "temperature", {0, 10}, &params.temperature));
  EW_RETURN_IF_ERROR(ReadNumber(body, "top_p", {0, 1}, &params.top_p));
  EW_RETURN_IF_ERROR(ReadNumber(body, "min_p", {0, 1}, &params.min_p));
  EW_RETURN_IF_ERROR(ReadNumber(body, "frequency_penalty", {-2, 2},
                                &params.frequency_penalty));
  EW_RETURN_IF_ERROR(
      ReadNumber(body, "presence_penalty", {-2, 2}, &params.presence_penalty));
  EW_RETURN_IF_ERROR(
      ReadNumber(body, "repeat_penalty", {0.01, 10}, &params.repeat_penalty));
  EW_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k,
                      OptionalInteger(body, "top_k", {-1, kMaxInt32}));
  if (top_k) {
    params.top_k = *top_k < 0 ? 0 : static_cast<int32_t>(*top_k);
  }
  EW_ASSIGN_OR_RETURN(const std::optional<int64_t> last_n,
                      OptionalInteger(body, "repeat_last_n", {0, kMaxInt32}));
  if (last_n) {
    params.repeat_last_n = static_cast<int32_t>(*last_n);
  }
  EW_ASSIGN_OR_RETURN(const std::optional<int64_t> seed,
                      OptionalInteger(body, "seed",
                                      {std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max()}));
  params.seed = FoldSeed(seed);
  EW_ASSIGN_OR_RETURN(params.logit_bias, ReadLogitBias(body));
  return params;
}

absl::StatusOr<std::vector<std::string>> ReadStops(const Json& body,
                                                   const char* name) {
  const Json* stop = FindField(body, name);
  std::vector<std::string> stops;
  if (stop == nullptr) {
    return stops;
  }
  const absl::Status wrong = InvalidRequest(
      absl::StrCat("'", name, "' must be a string or an array of at most ",
                   kMaxStops, " strings, and is ", Quoted(*stop)),
      name);
  if (stop->is_string()) {
    stops.push_back(stop->get<std::string>());
  } else if (stop->is_array() && stop->size() <= kMaxStops) {
    for (const Json& one : *stop) {
      if (!one.is_string()) {
        return wrong;
      }
      stops.push_back(one.get<std::string>());
    }
  } else {
    return wrong;
  }
  // No text contains the empty string as an end.
  std::erase_if(stops, [](const std::string& text) { return text.empty(); });
  return stops;
}

absl::StatusOr<std::optional<uint32_t>> ReadCount(const Json& body,
                                                  const char* name,
                                                  IntegerRange range) {
  EW_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                      OptionalInteger(body, name, range));
  if (!value) {
    return std::optional<uint32_t>();
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*value));
}

absl::StatusOr<GenerationOptions> ReadOptions(const Json& body) {
  EW_RETURN_IF_ERROR(OptionalString(body, "model").status());
  GenerationOptions options;
  EW_ASSIGN_OR_RETURN(options.stream, BoolOr(body, "stream", false));
  EW_ASSIGN_OR_RETURN(options.sampling, ReadSampling(body));
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> salt,
                      OptionalString(body, "cache_salt"));
  options.name_space = salt.value_or("");
  for (const char* name : {"session_id", "prompt_cache_key"}) {
    EW_ASSIGN_OR_RETURN(const std::optional<std::string> session,
                        OptionalString(body, name));
    if (options.session.empty()) {
      options.session =
          session.value_or("").substr(0, engine::kMaxSessionBytes);
    }
  }
  return options;
}

}  // namespace everwarm::server
