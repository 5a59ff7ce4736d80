// How much of prompts may go beside running replies, from measured step times.
//
// The replies' time alone is that of steps without prompt tokens. Such a step
// is put in now and then while prompts are computed, so that it stays known.
//
// Threads: one. Without a clock: durations are handed in.
#ifndef EVERWARM_ENGINE_STEP_PACER_H_
#define EVERWARM_ENGINE_STEP_PACER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace everwarm::engine {

class StepPacer {
 public:
  struct Options {
    // Of a running reply's times from token to token, 19 of 20 stay within so
    // many times what they are without prompts in its steps. 1: prompts get on
    // as slowly as can be.
    double max_slowdown = 3;
    // Prompt tokens of a step without running replies; no step has more.
    uint32_t max_prompt_tokens = 512;
  };
  explicit StepPacer(const Options& options) : options_(options) {}

  // Prompt tokens for the next step beside that many running replies; 0 when
  // the replies' time alone is to be measured first.
  uint32_t PromptTokens(uint32_t replies) const;

  // From the beginning of the step to that of the next one.
  void Measured(uint32_t replies, uint32_t prompt_tokens,
                std::chrono::nanoseconds time);

 private:
  struct Alone {
    double ns = 0;
    // Steps with prompt tokens since the last one without.
    uint32_t age = 0;
  };
  static constexpr double kFirstAim = 0.85;

  std::optional<double> KnownAlone(uint32_t replies) const;

  const Options options_;
  // By the number of replies; ns 0 where nothing was measured.
  std::vector<Alone> alone_;
  // What a prompt token adds to a step. 0: not known.
  double ns_per_prompt_token_ = 0;
  // The last step had prompt tokens.
  bool after_prompts_ = false;
  // The part of the allowed time that is aimed at: less where times vary much.
  double aim_ = kFirstAim;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_STEP_PACER_H_
