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
// A prompt gets on by at least this, whatever it costs.
constexpr uint32_t kFewestPromptTokens = 1;
// The first step beside replies, before anything was measured.
constexpr uint32_t kFirstPromptTokens = 8;
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

uint32_t StepPacer::PromptTokens(uint32_t replies) const {
  if (replies == 0) {
    return options_.max_prompt_tokens;
  }
  const std::optional<double> alone = KnownAlone(replies);
  if (!alone.has_value()) {
    return 0;
  }
  if (ns_per_prompt_token_ == 0) {
    return std::min(kFirstPromptTokens, options_.max_prompt_tokens);
  }
  const double room = *alone * (options_.max_slowdown * aim_ - 1);
  const double tokens = std::max(0.0, room) / ns_per_prompt_token_;
  return std::min(options_.max_prompt_tokens,
                  std::max(kFewestPromptTokens,
                           static_cast<uint32_t>(std::min(tokens, 1e6))));
}

void StepPacer::Measured(uint32_t replies, uint32_t prompt_tokens,
                         std::chrono::nanoseconds time) {
  if (replies == 0) {
    return;
  }
  if (replies >= alone_.size()) {
    alone_.resize(replies + 1);
  }
  Alone& alone = alone_[replies];
  const auto ns = static_cast<double>(time.count());
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
    // Never nothing: the next step would be far too large.
    const double each =
        std::max(ns - alone.ns, alone.ns * 0.01) / prompt_tokens;
    ns_per_prompt_token_ = Blend(ns_per_prompt_token_, each);
    aim_ += ns > alone.ns * options_.max_slowdown ? -kAimDown : kAimUp;
    aim_ = std::clamp(aim_, kLowestAim, 1.0);
  }
}

}  // namespace everwarm::engine
