#include "engine/scheduler.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "engine/step_policy.h"

namespace everwarm::engine {
namespace {

using Phase = Generation::Phase;

// Blocks by which a request may grow before the room it was given is full.
constexpr TokenPos kBlocksToGrow = 4;

// Requires: its sequence is ready.
PublicationPoints::Prompt PromptOf(Generation& generation) {
  const cache::Reuse& reuse = generation.sequence()->reuse();
  return {static_cast<TokenPos>(generation.request().prompt.size()),
          generation.request().boundary, reuse.cached, reuse.matched};
}

// It computes its prompt, or is about to.
bool IsComputingPrompt(const Generation& generation) {
  return generation.phase() == Phase::kLoading ||
         generation.phase() == Phase::kPrefill;
}

template <typename Entries>
auto PlaceOf(Entries& entries, uint64_t arrival) {
  return std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.arrival > arrival;
  });
}

}  // namespace

Scheduler::Scheduler(const Config& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      block_tokens_(parts_.cache->layout().block_tokens),
      points_(parts_.cache->layout(), config.state_every),
      endings_(parts_.cache, parts_.clock),
      pacer_(config.pace) {}

uint32_t Scheduler::FittingContext(const cache::KvCache& cache,
                                   uint32_t context_size,
                                   uint32_t step_tokens) {
  uint32_t fits = 0;
  for (uint32_t step = std::bit_floor(context_size); step > 0; step /= 2) {
    if (step <= context_size - fits &&
        cache.SequenceBytes(fits + step, step_tokens) <=
            cache.hard_cap_bytes()) {
      fits += step;
    }
  }
  return fits;
}

void Scheduler::Add(std::unique_ptr<Generation> generation) {
  waiting_.push_back({next_arrival_++, std::move(generation), std::nullopt});
}

void Scheduler::DropCancelled(bool all) {
  for (Entry& entry : running_) {
    if (all || entry.generation->cancelled()) {
      entry.generation->Finish(FinishReason::kCancelled);
      Settle(*entry.generation);
    }
  }
  SortOut();
  std::erase_if(waiting_, [&](Entry& entry) {
    if (!all && !entry.generation->cancelled()) {
      return false;
    }
    entry.generation->Finish(FinishReason::kCancelled);
    End(*entry.generation, {});
    return true;
  });
}

bool Scheduler::Step() {
  GiveTurns();
  FinishLoads();
  StartFollowers();
  FinishLoads();
  const Clock::Monotonic now = parts_.clock->Now();
  if (last_step_.has_value()) {
    pacer_.Measured(last_step_->replies, last_step_->prompt_tokens,
                    now - last_step_->began);
    last_step_.reset();
  }
  Gather();
  if (batch_.empty()) {
    return false;
  }
  LastStep step{now};
  for (const Batch::Part& part : batch_.parts()) {
    const bool reply = part.generation->phase() == Phase::kDecode;
    step.replies += reply ? 1 : 0;
    step.prompt_tokens += reply ? 0 : static_cast<uint32_t>(part.tokens.size());
  }
  last_step_ = step;
  Compute();
  return true;
}

// --- Turns ---

void Scheduler::GiveTurns() {
  while (!waiting_.empty() && running_.size() < config_.max_batch &&
         HasRoomFor(waiting_.front())) {
    Entry entry = std::move(waiting_.front());
    waiting_.pop_front();
    Generation& generation = *entry.generation;
    generation.Follow();
    prefixes_.Add(entry.arrival, generation.request().prompt,
                  generation.request().name_space);
    running_.insert(PlaceOf(running_, entry.arrival), std::move(entry));
  }
}

bool Scheduler::HasRoomFor(const Entry& entry) const {
  if (running_.empty()) {
    return true;
  }
  if (crowded_) {
    return false;
  }
  uint64_t bytes = BytesOf(entry, 0);
  for (size_t i = 0; i < running_.size(); ++i) {
    bytes += BytesOf(running_[i], i);
  }
  return bytes <= parts_.cache->live_limit_bytes();
}

// What it takes, and will soon, beside the first `others` running ones.
uint64_t Scheduler::BytesOf(const Entry& entry, size_t others) const {
  const auto length = static_cast<TokenPos>(entry.generation->num_tokens()) +
                      kBlocksToGrow * block_tokens_;
  TokenPos common = 0;
  for (size_t i = 0; i < others; ++i) {
    common =
        std::max(common, prefixes_.Common(entry.arrival, running_[i].arrival));
  }
  return parts_.cache->SequenceBytes(std::min(length, config_.context_size),
                                     config_.pace.max_prompt_tokens) -
         parts_.cache->SharedBytes(common);
}

void Scheduler::StartFollowers() {
  for (Entry& entry : running_) {
    Generation& generation = *entry.generation;
    if (generation.phase() != Phase::kFollowing || StillLeads(entry)) {
      continue;
    }
    const bool first = !entry.following.has_value();
    entry.following = Leader(entry);
    if (entry.following.has_value()) {
      counts_.followed += first ? 1 : 0;
      continue;
    }
    if (!generation.begun()) {
      counts_.prompt_tokens += generation.request().prompt.size();
    }
    std::unique_ptr<cache::Sequence> sequence = parts_.cache->Take(
        generation.AllTokens(), generation.request().name_space);
    parts_.cache->SetSession(*sequence, generation.request().session);
    generation.Start(std::move(sequence));
  }
}

// The one whose prompt is being computed and shares most with this one, if
// that is a block or more that it has not computed yet.
std::optional<Scheduler::Following> Scheduler::Leader(
    const Entry& entry) const {
  std::optional<Following> best;
  const auto own = static_cast<TokenPos>(entry.generation->num_tokens());
  for (const Entry& other : running_) {
    if (other.arrival == entry.arrival ||
        !IsComputingPrompt(*other.generation)) {
      continue;
    }
    // Something has to be left to compute.
    const TokenPos border =
        std::min(prefixes_.Common(entry.arrival, other.arrival), own - 1);
    const TokenPos there = other.generation->sequence()->length();
    if (border >= there + block_tokens_ &&
        (!best.has_value() || border > best->border)) {
      best = Following{other.arrival, border};
    }
  }
  return best;
}

bool Scheduler::StillLeads(const Entry& entry) const {
  if (!entry.following.has_value()) {
    return false;
  }
  for (const Entry& other : running_) {
    if (other.arrival == entry.following->leader) {
      return IsComputingPrompt(*other.generation) &&
             other.generation->sequence()->length() < entry.following->border;
    }
  }
  return false;
}

void Scheduler::FinishLoads() {
  for (Entry& entry : running_) {
    if (entry.generation->phase() == Phase::kLoading &&
        entry.generation->sequence()->ready()) {
      entry.generation->FinishLoading();
    }
  }
}

// --- The next step ---

std::vector<uint32_t> Scheduler::Plan() {
  std::vector<StepCandidate> candidates;
  std::vector<size_t> places;
  uint32_t replies = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    Generation& generation = *running_[i].generation;
    const bool decoding = generation.phase() == Phase::kDecode;
    if (!decoding && generation.phase() != Phase::kPrefill) {
      continue;
    }
    replies += decoding ? 1 : 0;
    StepCandidate candidate{decoding, generation.sequence()->length(),
                            static_cast<uint32_t>(generation.left())};
    candidate.border = points_.Next(PromptOf(generation), candidate.length)
                           .value_or(StepCandidate::kNoBorder);
    for (const Entry& other : running_) {
      if (other.following.has_value() &&
          other.following->leader == running_[i].arrival &&
          other.following->border > candidate.length) {
        candidate.border = std::min(candidate.border, other.following->border);
      }
    }
    candidates.push_back(candidate);
    places.push_back(i);
  }
  const StepPacer::Allowance allowed = pacer_.Next(replies);
  const std::vector<uint32_t> planned = PlanStep(
      candidates, {allowed.prompt_tokens, allowed.whole_rests, block_tokens_});
  std::vector<uint32_t> counts(running_.size(), 0);
  for (size_t c = 0; c < places.size(); ++c) {
    counts[places[c]] = planned[c];
  }
  return counts;
}

void Scheduler::Gather() {
  batch_.Clear();
  std::vector<uint32_t> counts = Plan();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (counts[i] > 0 && !MakeRoom(running_[i], counts[i])) {
      counts[i] = 0;
    }
  }
  const size_t num_groups = parts_.model->groups().size();
  for (size_t i = 0; i < running_.size(); ++i) {
    Generation& generation = *running_[i].generation;
    // A later one may have had to go for an earlier one.
    if (counts[i] > 0 && generation.phase() != Phase::kWaiting) {
      batch_.Add(&generation, generation.NextTokens(counts[i]), num_groups);
    }
  }
  SortOut();
}

// False when it does not take part in the step. Those that came last make way,
// which may be this one; one that is alone goes ahead.
bool Scheduler::MakeRoom(Entry& entry, uint32_t count) {
  Generation& generation = *entry.generation;
  if (generation.phase() == Phase::kWaiting) {
    return false;
  }
  absl::Status room;
  for (;;) {
    Entry* last = nullptr;
    size_t holders = 0;
    for (Entry& other : running_) {
      if (other.generation->sequence() != nullptr) {
        last = &other;
        ++holders;
      }
    }
    if (holders == 1 || parts_.cache->HasRoom(*generation.sequence(), count)) {
      room = parts_.cache->Reserve(*generation.sequence(), count);
      if (room.ok()) {
        return true;
      }
      if (holders == 1) {
        break;
      }
    }
    Pause(*last);
    if (last == &entry) {
      return false;
    }
  }
  generation.Fail(room);
  Settle(generation);
  return false;
}

void Scheduler::Pause(Entry& entry) {
  Generation& generation = *entry.generation;
  cache::Sequence& sequence = *generation.sequence();
  if (sequence.ready() && sequence.length() > 0) {
    // It goes on from there once, and then further.
    parts_.cache->Publish(sequence, cache::StateUse::kPassing);
  }
  generation.Pause();
  crowded_ = true;
  ++counts_.paused;
}

void Scheduler::Compute() {
  const absl::StatusOr<absl::Span<const float>> logits =
      parts_.model->Step(batch_.input());
  ++counts_.steps;
  if (!logits.ok()) {
    parts_.logger->error("a step of {} rows failed: {}", batch_.num_rows(),
                         std::string(logits.status().message()));
    for (const Batch::Part& part : batch_.parts()) {
      part.generation->Fail(logits.status());
      Settle(*part.generation);
    }
  } else {
    const uint32_t vocab_size = parts_.model->info().vocab_size;
    absl::Span<const float> rest = *logits;
    for (const Batch::Part& part : batch_.parts()) {
      const size_t taken = part.wants_logits ? vocab_size : 0;
      TakeResult(part, rest.first(taken));
      rest.remove_prefix(taken);
    }
  }
  SortOut();
}

void Scheduler::TakeResult(const Batch::Part& part,
                           absl::Span<const float> logits) {
  Generation& generation = *part.generation;
  cache::Sequence& sequence = *generation.sequence();
  parts_.cache->Append(sequence, part.tokens);
  const bool prefill = generation.phase() == Phase::kPrefill;
  const bool prompt_done = prefill && generation.left() == 0;
  if (prefill) {
    counts_.computed_prompt_tokens += part.tokens.size();
  }
  if (prompt_done) {
    generation.BeginDecode(parts_.model->info().vocab_size);
  }
  if (part.wants_logits) {
    generation.TakeLogits(logits, config_.context_size);
    ++counts_.generated_tokens;
  } else if (prompt_done) {
    generation.Finish(FinishReason::kLength);
  }
  if (generation.phase() == Phase::kFinished) {
    Settle(generation);
    return;
  }
  using Stage = PublicationPoints::Stage;
  const Stage stage = prompt_done ? Stage::kPromptDone
                      : prefill   ? Stage::kPrompt
                                  : Stage::kReply;
  if (const std::optional<cache::StateUse> states =
          Publication(generation, stage)) {
    parts_.cache->Publish(sequence, *states);
  }
}

std::optional<cache::StateUse> Scheduler::Publication(
    Generation& generation, PublicationPoints::Stage stage) const {
  const TokenPos length = generation.length();
  if (stage != PublicationPoints::Stage::kReply &&
      std::any_of(running_.begin(), running_.end(), [&](const Entry& entry) {
        return entry.following.has_value() &&
               entry.following->border == length &&
               entry.generation->phase() == Phase::kFollowing;
      })) {
    // Somebody waits for just that much.
    return cache::StateUse::kKept;
  }
  return points_.At(PromptOf(generation), length, stage);
}

// --- Ends ---

void Scheduler::Settle(Generation& generation) {
  cache::Sequence* sequence = generation.sequence();
  std::vector<TokenId> tokens;
  // Whatever was computed is right, also when the request was cancelled.
  if (sequence != nullptr && sequence->ready() && sequence->length() > 0) {
    parts_.cache->Publish(*sequence);
    tokens.assign(sequence->tokens().begin(), sequence->tokens().end());
  }
  generation.ReleaseSequence();
  // What was computed and no more: that is what a restart finds, too.
  if (parts_.history != nullptr && !tokens.empty() &&
      generation.usage().completion_tokens > 0) {
    parts_.history->Remember(generation.request().name_space, tokens);
  }
  End(generation, std::move(tokens));
  crowded_ = false;
}

void Scheduler::End(const Generation& generation, std::vector<TokenId> tokens) {
  Count(generation);
  if (generation.reason().has_value()) {
    const bool cancelled = *generation.reason() == FinishReason::kCancelled;
    endings_.Add(
        {.channel = generation.channel(),
         .event = {*generation.reason(), generation.usage(), generation.stop()},
         .tokens = std::move(tokens),
         .name_space = generation.request().name_space,
         .wait_durable = cancelled ? std::chrono::milliseconds(0)
                                   : generation.request().wait_durable});
  }
}

void Scheduler::Count(const Generation& generation) {
  if (!generation.reason().has_value()) {
    ++counts_.failed;
  } else if (*generation.reason() == FinishReason::kCancelled) {
    ++counts_.cancelled;
  } else {
    ++counts_.finished;
  }
}

void Scheduler::SortOut() {
  for (Entry& entry : running_) {
    const Phase phase = entry.generation->phase();
    if (phase != Phase::kFinished && phase != Phase::kWaiting) {
      continue;
    }
    prefixes_.Remove(entry.arrival);
    if (phase == Phase::kWaiting) {
      entry.following.reset();
      const uint64_t arrival = entry.arrival;
      waiting_.insert(PlaceOf(waiting_, arrival), std::move(entry));
    } else {
      entry.generation.reset();
    }
  }
  std::erase_if(running_,
                [](const Entry& entry) { return entry.generation == nullptr; });
}

}  // namespace everwarm::engine
