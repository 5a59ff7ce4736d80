#include "engine/step_pacer.h"

#include <algorithm>

namespace everwarm::engine {
namespace {

// Steps with prompt tokens between two without: few enough to follow replies
// that grow, and many enough to cost prompts nothing to speak of.
constexpr uint32_t kMeasureEvery = 64;
// How the aim moves after a step that took longer than allowed, and after one
// that did not: it rests where one of 34 does.
constexpr double kAimDown = 0.066;
constexpr double kAimUp = 0.002;
constexpr double kLowestAim = 0.5;
// The replies' steps between two long ones take so much of a long one's time: a
// prompt beside them takes so much longer than alone.
constexpr double kReplyShare = 0.2;
// The part of that time that is aimed at: a prompt gets dearer as it gets on.
constexpr double kLongAim = 0.95;
// What a step without replies aims at, ns: somebody may come during it.
constexpr double kLongestAlone = 1e9;
// A prompt gets on by at least this, whatever it costs.
constexpr uint32_t kFewestPromptTokens = 1;
// The first step beside replies, before anything was measured, and the first
// long one.
constexpr uint32_t kFirstPromptTokens = 8;
constexpr uint32_t kFirstOfMany = 64;
// From here on a step has many prompt tokens: what does not depend on their
// number is small then.
constexpr uint32_t kMany = 32;
// Weight of a new measurement.
constexpr double kNew = 0.3;

double Blend(double old, double now) {
  return old == 0 ? now : old + kNew * (now - old);
}

}  // namespace

std::optional<double> StepPacer::KnownAlone(uint32_t replies) const {
  if (replies >= alone_.size() || alone_[replies].ns == 0 ||
      alone_[replies].age >= kMeasureEvery) {
    return std::nullopt;
  }
  return alone_[replies].ns;
}

// Prompts get at least half of the time that way. Measured, small pieces gave
// them 0.45 to 0.63 where replies took 13 ms (docs/decisions/0009).
bool StepPacer::LongStepsPay(double alone) const {
  return alone * (kLongEvery - 1) <=
         static_cast<double>(options_.max_gap.count());
}

double StepPacer::LongStep(double alone) const {
  return std::min(static_cast<double>(options_.max_gap.count()),
                  alone * (kLongEvery - 1) / kReplyShare);
}

uint32_t StepPacer::Tokens(double room, double ns_per_token,
                           uint32_t first) const {
  const double tokens = ns_per_token == 0
                            ? first
                            : std::min(std::max(0.0, room) / ns_per_token, 1e6);
  return std::min(options_.max_prompt_tokens,
                  std::max(kFewestPromptTokens, static_cast<uint32_t>(tokens)));
}

StepPacer::Allowance StepPacer::Next(uint32_t replies) {
  long_step_ = false;
  if (replies == 0) {
    return {Tokens(kLongestAlone, ns_per_token_of_many_,
                   options_.max_prompt_tokens)};
  }
  const std::optional<double> alone = KnownAlone(replies);
  if (!alone.has_value()) {
    return {};
  }
  const bool long_steps = LongStepsPay(*alone);
  if (long_steps && since_long_ + 1 >= kLongEvery) {
    long_step_ = true;
    return {Tokens(LongStep(*alone) * kLongAim - *alone, ns_per_token_of_many_,
                   kFirstOfMany)};
  }
  const double room = *alone * (options_.max_slowdown * aim_ - 1);
  return {Tokens(room, ns_per_token_of_few_, kFirstPromptTokens), long_steps};
}

void StepPacer::Measured(uint32_t replies, uint32_t prompt_tokens,
                         std::chrono::nanoseconds time) {
  const auto ns = static_cast<double>(time.count());
  if (replies == 0) {
    if (prompt_tokens > 0) {
      MeasuredPrompts(0, prompt_tokens, ns);
    }
    return;
  }
  if (replies >= alone_.size()) {
    alone_.resize(replies + 1);
  }
  Alone& alone = alone_[replies];
  const bool late = alone.ns > 0 && ns > alone.ns * options_.max_slowdown;
  since_long_ = late ? 0 : std::min(since_long_ + 1, kLongEvery);
  if (prompt_tokens == 0) {
    // Just after prompts the caches are cold: such a step takes longer than the
    // replies do by themselves.
    const double time_alone = after_prompts_ && alone.ns > 0
                                  ? std::min(alone.ns, ns)
                                  : Blend(alone.ns, ns);
    alone.ns = std::max(1.0, time_alone);
    alone.age = 0;
    after_prompts_ = false;
    return;
  }
  after_prompts_ = true;
  ++alone.age;
  if (alone.ns > 0) {
    MeasuredPrompts(alone.ns, prompt_tokens, ns);
    if (!long_step_) {
      aim_ += late ? -kAimDown : kAimUp;
      aim_ = std::clamp(aim_, kLowestAim, 1.0);
    }
  }
}

void StepPacer::MeasuredPrompts(double alone, uint32_t prompt_tokens,
                                double ns) {
  // Never nothing: the next step would be far too large.
  const double each = std::max({ns - alone, alone * 0.01, 1.0}) / prompt_tokens;
  if (prompt_tokens < kMany) {
    ns_per_token_of_few_ = Blend(ns_per_token_of_few_, each);
  } else {
    // Behind a longer context all at once: a gap too long is worse than one
    // too short.
    ns_per_token_of_many_ = each > ns_per_token_of_many_
                                ? each
                                : Blend(ns_per_token_of_many_, each);
  }
}

}  // namespace everwarm::engine
