// Requests for engines over a fake model, and what came of them.
#ifndef EVERWARM_TESTING_ENGINE_HARNESS_H_
#define EVERWARM_TESTING_ENGINE_HARNESS_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/kv_cache.h"
#include "engine/cache_layout.h"
#include "engine/engine.h"
#include "engine/token_text.h"
#include "models/model.h"
#include "testing/fake_model.h"

namespace everwarm::engine {

inline constexpr TokenId kEndToken = FakeModel::kVocab - 1;
// Far beyond what a test needs; a hang fails instead of lasting for ever.
inline constexpr std::chrono::milliseconds kPatience{60000};

// Tokens as "t5 "; the last one ends a reply.
class FakeTokenText final : public TokenText {
 public:
  std::string Piece(TokenId token) const override {
    return absl::StrCat("t", token, " ");
  }
  std::string PieceWithControl(TokenId token) const override {
    return absl::StrCat("<t", token, "> ");
  }
  bool IsEndOfGeneration(TokenId token) const override {
    return token == kEndToken;
  }
};

struct Outcome {
  std::string text;
  std::optional<FinishReason> reason;
  Usage usage;
  std::string stop;
  std::vector<ChosenToken> tokens;
  absl::Status failure;
};

// `next` gives the next event, or nothing where none came in time.
template <typename Next>
Outcome CollectOutcome(Next next) {
  Outcome outcome;
  for (;;) {
    std::optional<ReplyEvent> event = next();
    if (!event.has_value()) {
      ADD_FAILURE() << "no event";
      return outcome;
    }
    if (auto* text = std::get_if<TextEvent>(&*event)) {
      outcome.text += text->text;
      outcome.tokens.insert(outcome.tokens.end(), text->tokens.begin(),
                            text->tokens.end());
    } else if (auto* finished = std::get_if<FinishedEvent>(&*event)) {
      outcome.reason = finished->reason;
      outcome.usage = finished->usage;
      outcome.stop = finished->stop;
      return outcome;
    } else {
      outcome.failure = std::get<FailedEvent>(*event).status;
      return outcome;
    }
  }
}

// Never the end of a reply.
inline std::vector<TokenId> SomePrompt(size_t length, TokenId seed) {
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<TokenId>((i * 31 + seed) % kEndToken));
  }
  return prompt;
}

// Greedy, and of just so many tokens.
inline Request GreedyRequest(std::vector<TokenId> prompt, uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

// The cache that goes with a model; no fingerprint.
inline cache::KvCache::Config CacheConfigFor(const models::Model& model,
                                             uint64_t target_bytes,
                                             uint64_t hard_cap_bytes) {
  cache::KvCache::Config config;
  config.layout = CacheLayoutOf(model).value();
  config.ram_target_bytes = target_bytes;
  config.ram_hard_cap_bytes = hard_cap_bytes;
  return config;
}

inline std::vector<BySpan<BlockGeometry>> GeometriesOf(
    const models::Model& model) {
  std::vector<BySpan<BlockGeometry>> geometries;
  for (const models::ModelGroup& group : model.groups()) {
    geometries.push_back(group.geometry);
  }
  return geometries;
}

}  // namespace everwarm::engine

#endif  // EVERWARM_TESTING_ENGINE_HARNESS_H_
