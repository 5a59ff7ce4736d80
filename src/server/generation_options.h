// What every API can ask of a generation, and the fields that say so.
//
// Threads: pure, any.
// Errors:  kInvalidArgument with the field as its param (api_error.h).
#ifndef EVERWARM_SERVER_GENERATION_OPTIONS_H_
#define EVERWARM_SERVER_GENERATION_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/json_fields.h"
#include "server/json_text.h"

namespace everwarm::server {

struct GenerationOptions {
  bool stream = false;
  // A stream ends with its usage.
  bool include_usage = false;
  // Replies to the same prompt.
  uint32_t choices = 1;
  // Nothing: the API's own default.
  std::optional<uint32_t> max_tokens;
  engine::SamplingParams sampling;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  // How many of the likeliest tokens come with each; nothing: no logprobs.
  std::optional<uint32_t> top_logprobs;
  // From "cache_salt"; empty: the common one.
  std::string name_space;
  // From "session_id" or "prompt_cache_key"; a hint. Empty: none.
  std::string session;
};

// Replies that one request may ask for, over all its prompts.
inline constexpr uint32_t kMaxChoices = 128;

// Temperature, seed, penalties and the like; logit_bias with ids of 0 or more,
// not compared with the vocabulary.
absl::StatusOr<engine::SamplingParams> ReadSampling(const Json& body);

// A string or an array of at most 16; empty ones are left out.
absl::StatusOr<std::vector<std::string>> ReadStops(const Json& body,
                                                   const char* name);

absl::StatusOr<std::optional<uint32_t>> ReadCount(const Json& body,
                                                  const char* name,
                                                  IntegerRange range);

// The fields that mean the same in all APIs: "stream", "model" (any name means
// the loaded model, but it must be one), "cache_salt", the
// session, and ReadSampling()'s.
absl::StatusOr<GenerationOptions> ReadOptions(const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_GENERATION_OPTIONS_H_
