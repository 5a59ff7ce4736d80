// How much of prompts may go beside running replies, from measured step times.
//
// The replies' time alone is that of steps without prompt tokens. Such a step
// is put in now and then while prompts are computed, so that it stays known.
//
// A small piece of a prompt costs far more a token than a large one: it reads
// all weights and all keys and values before it for a few rows. So where
// replies are fast, most steps are theirs alone, and one of 28 is so long that
// prompts hardly feel them (see docs/decisions/0009). Where they are slow,
// every step has a small piece.
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
    // No long step aims at more; 0: there are none.
    std::chrono::nanoseconds max_gap = std::chrono::milliseconds(600);
    // No step has more prompt tokens.
    uint32_t max_prompt_tokens = 512;
  };
  explicit StepPacer(const Options& options) : options_(options) {}

  struct Allowance {
    // 0 when the replies' time alone is to be measured first.
    uint32_t prompt_tokens = 0;
    // Only for prompts that come to their end within it: the others have their
    // turn in a long step.
    bool whole_rests = false;
  };
  // Of the next step, beside that many running replies.
  Allowance Next(uint32_t replies);

  // What came of it, from the beginning of the step to that of the next one.
  void Measured(uint32_t replies, uint32_t prompt_tokens,
                std::chrono::nanoseconds time);

 private:
  struct Alone {
    double ns = 0;
    // Steps with prompt tokens since the last one without.
    uint32_t age = 0;
  };
  static constexpr double kFirstAim = 0.85;
  // One step of so many may be long: less than one of 20, since some are long
  // by accident.
  static constexpr uint32_t kLongEvery = 28;

  std::optional<double> KnownAlone(uint32_t replies) const;
  bool LongStepsPay(double alone) const;
  double LongStep(double alone) const;
  uint32_t Tokens(double room, double ns_per_token, uint32_t first) const;
  void MeasuredPrompts(double alone, uint32_t prompt_tokens, double ns);

  const Options options_;
  // By the number of replies; ns 0 where nothing was measured.
  std::vector<Alone> alone_;
  // What a prompt token adds to a step of a few of them, and of many. 0: not
  // known.
  double ns_per_token_of_few_ = 0;
  double ns_per_token_of_many_ = 0;
  // The last step had prompt tokens.
  bool after_prompts_ = false;
  // The part of the allowed time that is aimed at: less where times vary much.
  double aim_ = kFirstAim;
  // The step that is next, or running, was given a long one's tokens.
  bool long_step_ = false;
  // Steps beside replies since one took longer than `max_slowdown` allows.
  uint32_t since_long_ = kLongEvery;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_STEP_PACER_H_
