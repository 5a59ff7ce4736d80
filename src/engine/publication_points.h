// Where a request is published while it is computed, so that others, and later
// requests, can go on from there.
//
// Full and latent groups go on from anywhere: their blocks are published as
// they fill. A window or a state is there only where somebody chose to publish:
// - where later prompts of the conversation share this one (the boundary that
//   the chat template has; else before the last token, which the same prompt
//   has to compute again);
// - where the prompt leaves what the cache knows of it: an edited turn, or
//   another conversation, which more may leave at the same place;
// - with states, every so many tokens, so that whatever comes does not cost
//   more. These pass: the cache thins them as the conversation goes on.
//
// Pure.
#ifndef EVERWARM_ENGINE_PUBLICATION_POINTS_H_
#define EVERWARM_ENGINE_PUBLICATION_POINTS_H_

#include <optional>

#include "base/ids.h"
#include "cache/kv_cache.h"
#include "cache/layer_group.h"

namespace everwarm::engine {

// Tokens that may be between two states: none (0: no states there), or a power
// of two, since states are much larger than what fewer tokens are worth.
inline constexpr TokenPos kLeastStateEvery = 64;
bool MayBeStateEvery(TokenPos tokens);

class PublicationPoints {
 public:
  // Of one prompt. Positions, from the start.
  struct Prompt {
    TokenPos length = 0;
    TokenPos boundary = 0;  // 0: none
    // As in cache::Reuse.
    TokenPos cached = 0;
    TokenPos matched = 0;
  };

  // How far the request had come when the position was reached.
  enum class Stage {
    kPrompt,
    kPromptDone,
    kReply,
  };

  // `state_every`: tokens between two states on the way; 0: none there.
  PublicationPoints(const cache::CacheLayout& layout, TokenPos state_every);

  // The next position behind `length` where a step ends that computes more than
  // a token.
  std::optional<TokenPos> Next(const Prompt& prompt, TokenPos length) const;

  // Whether what is there at `length` is published, and what becomes of its
  // states.
  std::optional<cache::StateUse> At(const Prompt& prompt, TokenPos length,
                                    Stage stage) const;

 private:
  // The chosen ones; 0: none.
  TokenPos Boundary(const Prompt& prompt) const;
  TokenPos Departure(const Prompt& prompt) const;

  const TokenPos block_tokens_;
  bool states_ = false;
  bool anywhere_ = true;
  TokenPos state_every_ = 0;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_PUBLICATION_POINTS_H_
