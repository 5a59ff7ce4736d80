#include "server/openai_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/json_fields.h"

namespace everwarm::server {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 16;

absl::StatusOr<std::vector<std::string>> ParseStops(const Json& body) {
  const Json* stop = FindField(body, "stop");
  std::vector<std::string> stops;
  if (stop == nullptr) {
    return stops;
  }
  const absl::Status wrong = InvalidRequest(
      absl::StrCat("'stop' must be a string or an array of at most ", kMaxStops,
                   " strings, and is ", Quoted(*stop)),
      "stop");
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

absl::Status ParseNumber(const Json& body, const char* name, NumberRange range,
                         float* into) {
  EW_ASSIGN_OR_RETURN(const std::optional<double> value,
                      OptionalNumber(body, name, range));
  if (value) {
    *into = static_cast<float>(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::SamplingParams> ParseSampling(const Json& body) {
  engine::SamplingParams params;
  EW_RETURN_IF_ERROR(
      ParseNumber(body, "temperature", {0, 10}, &params.temperature));
  EW_RETURN_IF_ERROR(ParseNumber(body, "top_p", {0, 1}, &params.top_p));
  EW_RETURN_IF_ERROR(ParseNumber(body, "min_p", {0, 1}, &params.min_p));
  EW_RETURN_IF_ERROR(ParseNumber(body, "frequency_penalty", {-2, 2},
                                 &params.frequency_penalty));
  EW_RETURN_IF_ERROR(
      ParseNumber(body, "presence_penalty", {-2, 2}, &params.presence_penalty));
  EW_RETURN_IF_ERROR(
      ParseNumber(body, "repeat_penalty", {0.01, 10}, &params.repeat_penalty));
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
  return params;
}

absl::StatusOr<std::optional<uint32_t>> ParseMaxTokens(const Json& body) {
  std::optional<uint32_t> max_tokens;
  // The newer name comes last and wins.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    EW_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                        OptionalInteger(body, name, {0, kMaxInt32}));
    if (value) {
      max_tokens = static_cast<uint32_t>(*value);
    }
  }
  return max_tokens;
}

absl::Status RefuseMoreThanOneChoice(const Json& body) {
  for (const char* name : {"n", "best_of"}) {
    EW_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                        OptionalInteger(body, name, {1, kMaxInt32}));
    if (value && *value != 1) {
      return InvalidRequest(
          absl::StrCat("'", name, "' must be 1: one choice per request"), name,
          "unsupported");
    }
  }
  return absl::OkStatus();
}

// A field with harmless values, and others that ask for what we lack.
absl::Status RefuseUnless(const Json& body, const char* name,
                          const std::vector<Json>& harmless) {
  const Json* value = FindField(body, name);
  if (value == nullptr ||
      std::find(harmless.begin(), harmless.end(), *value) != harmless.end()) {
    return absl::OkStatus();
  }
  return InvalidRequest(absl::StrCat("'", name, "' is not supported"), name,
                        "unsupported");
}

absl::Status RefuseWhatWeLack(const Json& body) {
  for (const char* name :
       {"tools", "functions", "function_call", "top_logprobs", "logit_bias",
        "audio", "web_search_options", "grammar", "json_schema", "echo",
        "suffix"}) {
    EW_RETURN_IF_ERROR(RefuseField(body, name));
  }
  EW_RETURN_IF_ERROR(
      RefuseUnless(body, "tool_choice", {Json("none"), Json("auto")}));
  EW_RETURN_IF_ERROR(RefuseUnless(body, "response_format",
                                  {Json::object({{"type", "text"}})}));
  EW_RETURN_IF_ERROR(RefuseUnless(body, "modalities", {Json::array({"text"})}));
  // In completions it is a number, and 0 asks for something.
  return RefuseUnless(body, "logprobs", {Json(false)});
}

absl::StatusOr<GenerationOptions> ParseOptions(const Json& body) {
  EW_RETURN_IF_ERROR(RefuseWhatWeLack(body));
  EW_RETURN_IF_ERROR(RefuseMoreThanOneChoice(body));
  // One model is loaded: any name means it, but it must be one.
  EW_RETURN_IF_ERROR(OptionalString(body, "model").status());

  GenerationOptions options;
  EW_ASSIGN_OR_RETURN(options.stream, BoolOr(body, "stream", false));
  if (const Json* stream = FindField(body, "stream_options")) {
    if (!stream->is_object()) {
      return InvalidRequest("'stream_options' must be an object",
                            "stream_options");
    }
    EW_ASSIGN_OR_RETURN(options.include_usage,
                        BoolOr(*stream, "include_usage", false));
  }
  EW_ASSIGN_OR_RETURN(options.max_tokens, ParseMaxTokens(body));
  EW_ASSIGN_OR_RETURN(options.sampling, ParseSampling(body));
  EW_ASSIGN_OR_RETURN(options.stops, ParseStops(body));
  EW_ASSIGN_OR_RETURN(options.ignore_eos, BoolOr(body, "ignore_eos", false));
  EW_ASSIGN_OR_RETURN(const std::optional<std::string> salt,
                      OptionalString(body, "cache_salt"));
  options.name_space = salt.value_or("");
  return options;
}

absl::StatusOr<std::vector<TokenId>> ParseTokenIds(const Json& list,
                                                   const char* name) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& one : list) {
    if (!one.is_number_unsigned() ||
        one.get<uint64_t>() > static_cast<uint64_t>(kMaxInt32)) {
      return InvalidRequest(
          absl::StrCat("'", name, "' must hold token ids, and has ",
                       Quoted(one), " at ", tokens.size()),
          name);
    }
    tokens.push_back(static_cast<TokenId>(one.get<uint64_t>()));
  }
  return tokens;
}

absl::Status EmptyPrompt() {
  return InvalidRequest("'prompt' is empty: there is nothing to go on from",
                        "prompt", "empty_prompt");
}

absl::StatusOr<std::variant<std::string, std::vector<TokenId>>> ParsePrompt(
    const Json& body) {
  const Json* prompt = FindField(body, "prompt");
  if (prompt == nullptr) {
    return InvalidRequest("'prompt' is missing", "prompt");
  }
  // A batch of one prompt is that prompt.
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    if (prompt->size() > 1) {
      return InvalidRequest(
          absl::StrCat("'prompt' must be one prompt, and has ", prompt->size()),
          "prompt", "unsupported");
    }
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    auto text = prompt->get<std::string>();
    if (text.empty()) {
      return EmptyPrompt();
    }
    return text;
  }
  if (prompt->is_array()) {
    if (prompt->empty()) {
      return EmptyPrompt();
    }
    return ParseTokenIds(*prompt, "prompt");
  }
  return InvalidRequest(
      absl::StrCat(
          "'prompt' must be a string or an array of token ids, and is ",
          Quoted(*prompt)),
      "prompt");
}

}  // namespace

absl::StatusOr<ChatRequest> ParseChatRequest(const Json& body) {
  ChatRequest request;
  EW_ASSIGN_OR_RETURN(request.messages, ParseChatMessages(body));
  EW_ASSIGN_OR_RETURN(request.options, ParseOptions(body));
  return request;
}

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const Json& body) {
  CompletionRequest request;
  EW_ASSIGN_OR_RETURN(request.prompt, ParsePrompt(body));
  EW_ASSIGN_OR_RETURN(request.options, ParseOptions(body));
  return request;
}

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(const Json& body) {
  TokenizeRequest request;
  EW_ASSIGN_OR_RETURN(request.content, RequiredString(body, "content"));
  EW_ASSIGN_OR_RETURN(request.add_special, BoolOr(body, "add_special", false));
  EW_ASSIGN_OR_RETURN(request.parse_special,
                      BoolOr(body, "parse_special", true));
  EW_RETURN_IF_ERROR(RefuseField(body, "with_pieces"));
  return request;
}

absl::StatusOr<std::vector<TokenId>> ParseDetokenizeRequest(const Json& body) {
  const Json* tokens = FindField(body, "tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return InvalidRequest("'tokens' must be an array of token ids", "tokens");
  }
  return ParseTokenIds(*tokens, "tokens");
}

}  // namespace everwarm::server
