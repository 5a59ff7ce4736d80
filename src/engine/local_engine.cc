#include "engine/local_engine.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/publication_points.h"

namespace everwarm::engine {
namespace {

using std::chrono::milliseconds;

// How long the idle engine sleeps when nobody wakes it: failed writes are tried
// again and budgets kept at this pace.
constexpr milliseconds kIdleTick{1000};
// The same while somebody waits for the disk.
constexpr milliseconds kFlushTick{20};

Scheduler::Config SchedulerConfig(const LocalEngine::Config& config,
                                  uint32_t context_size) {
  return {context_size,
          config.max_batch,
          config.state_every,
          {config.max_slowdown, config.max_gap, config.prefill_chunk}};
}

}  // namespace

void WakeUp::Notify() {
  MutexLock lock(mutex_);
  notified_ = true;
  condition_.NotifyOne();
}

void WakeUp::Wait(milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!notified_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) {
      break;
    }
    condition_.WaitFor(mutex_, left);
  }
  notified_ = false;
}

absl::Status LocalEngine::Config::Validate() const {
  if (context_size < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("context size ", context_size, " is below 2"));
  }
  if (max_batch == 0 || prefill_chunk == 0) {
    return absl::InvalidArgumentError(
        "batch and prefill sizes must be at least 1");
  }
  if (!MayBeStateEvery(state_every)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "states every ", state_every, " tokens: not a power of two from ",
        kLeastStateEvery, " on, and not 0"));
  }
  if (!(max_slowdown >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slowdown of ", max_slowdown, " is below 1"));
  }
  if (max_gap < milliseconds(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gap of ", max_gap.count(), " ms is below 0"));
  }
  return absl::OkStatus();
}

LocalEngine::LocalEngine(const Config& config, Parts parts,
                         std::vector<cache::Conversation> latest)
    : config_(config),
      parts_(std::move(parts)),
      wake_up_(std::make_shared<WakeUp>()),
      kv_sizes_(models::KvSizesOf(parts_.model->groups())),
      context_size_(Scheduler::FittingContext(
          *parts_.cache, config_.context_size, config_.prefill_chunk)),
      scheduler_(SchedulerConfig(config_, context_size_),
                 {parts_.model, parts_.cache, parts_.clock, parts_.logger,
                  parts_.history}),
      flushes_(parts_.cache, parts_.clock) {
  if (context_size_ < config_.context_size) {
    parts_.logger->warn(
        "the RAM for blocks holds {} tokens of one request: the context is cut "
        "from {} to that",
        context_size_, config_.context_size);
  }
  if (config_.preload_bytes > 0) {
    preload_ = std::make_unique<cache::Preload>(
        parts_.cache, std::move(latest),
        cache::Preload::Options{config_.preload_bytes});
  }
  parts_.tier->SetWakeUp([wake_up = wake_up_] { wake_up->Notify(); });
  PublishStats();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "engine");
    Run();
  });
}

LocalEngine::~LocalEngine() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    quit_ = true;
  }
  cancel_all_.store(true);
  wake_up_->Notify();
  thread_.join();
}

const models::ModelInfo& LocalEngine::model() const {
  return parts_.model->info();
}

absl::Status LocalEngine::CheckRequest(const Request& request) const {
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("the prompt has no tokens");
  }
  if (request.prompt.size() >= context_size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", request.prompt.size(),
        " tokens, but the context of ", context_size_, " tokens has room for ",
        context_size_ - 1, " and one of the reply"));
  }
  for (const TokenId token : request.prompt) {
    if (token < 0 ||
        static_cast<uint32_t>(token) >= parts_.model->info().vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " is not in the vocabulary of ",
                       parts_.model->info().vocab_size, " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Reply>> LocalEngine::Submit(Request request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) {
    return status;
  }
  auto channel = std::make_shared<ReplyChannel>();
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      return absl::UnavailableError("the server is stopping");
    }
    if (unfinished_ >= config_.max_waiting + config_.max_batch) {
      return absl::ResourceExhaustedError(absl::StrCat(
          unfinished_, " requests are waiting or running already"));
    }
    ++unfinished_;
    ++stats_.requests;
    arrived_.push_back(std::make_unique<Generation>(std::move(request), channel,
                                                    parts_.text, parts_.clock));
  }
  wake_up_->Notify();
  return std::make_unique<ChannelReply>(
      std::move(channel), [wake_up = wake_up_] { wake_up->Notify(); });
}

DrainOutcome LocalEngine::RunFlush(FlushRuns::Call call, milliseconds timeout) {
  call.began = parts_.clock->Now();
  call.deadline = call.began + timeout;
  std::future<DrainOutcome> outcome = call.outcome.get_future();
  {
    MutexLock lock(mutex_);
    if (quit_) {
      return {.flush = {.timed_out = true}};
    }
    arrived_flushes_.push_back(std::move(call));
  }
  wake_up_->Notify();
  return outcome.get();
}

FlushOutcome LocalEngine::Flush(milliseconds timeout) {
  return RunFlush({}, timeout).flush;
}

DrainOutcome LocalEngine::Drain(milliseconds timeout) {
  return RunFlush({.demote = true}, timeout);
}

EngineStats LocalEngine::stats() const {
  EngineStats stats;
  {
    MutexLock lock(mutex_);
    stats = stats_;
  }
  stats.tier = parts_.tier->stats();
  return stats;
}

void LocalEngine::CloseSession(std::string id) {
  {
    MutexLock lock(mutex_);
    closed_sessions_.push_back(std::move(id));
  }
  wake_up_->Notify();
}

void LocalEngine::CancelAll() {
  cancel_all_.store(true);
  {
    MutexLock lock(mutex_);
    hurried_at_ = hurried_at_.value_or(parts_.clock->Now());
  }
  wake_up_->Notify();
}

FlushOutcome LocalEngine::Stop(milliseconds deadline) {
  MutexLock stop_lock(stop_mutex_);
  if (stopped_.has_value()) {
    return *stopped_;
  }
  const auto end = std::chrono::steady_clock::now() + deadline;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    while (unfinished_ > 0) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        break;
      }
      finished_.WaitFor(mutex_, left);
    }
    // Only what is still running: a flush keeps its time.
    cancel_all_.store(true);
    wake_up_->Notify();
    // A cancelled reply ends within one step.
    while (unfinished_ > 0) {
      finished_.WaitFor(mutex_, milliseconds(100));
    }
  }
  // What is left of the time, and never less than a moment to write.
  const auto left = std::chrono::duration_cast<milliseconds>(
      end - std::chrono::steady_clock::now());
  const FlushOutcome outcome =
      RunFlush({.newest_first = true}, std::max(left, config_.least_stop_flush))
          .flush;
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  wake_up_->Notify();
  stopped_ = outcome;
  return outcome;
}

void LocalEngine::Run() {
  for (;;) {
    TakeArrivals();
    parts_.cache->Poll();
    scheduler_.DropCancelled(cancel_all_.load());
    const bool computing = scheduler_.Step();
    const std::optional<FlushRuns::Hurry> hurry = AskHurry();
    flushes_.Settle(hurry);
    ContinuePreload(scheduler_.idle());
    SendEndings(hurry.has_value());
    PublishStats();
    // Whoever is answered finds in the counts what was done.
    flushes_.SendAnswers();
    bool quit = false;
    {
      MutexLock lock(mutex_);
      quit = quit_ && arrived_.empty() && arrived_flushes_.empty();
    }
    if (quit && scheduler_.idle() && flushes_.empty()) {
      preload_.reset();
      scheduler_.endings().SendAll();
      return;
    }
    if (!computing) {
      const bool patient = flushes_.empty() && scheduler_.endings().empty();
      wake_up_->Wait(patient ? kIdleTick : kFlushTick);
    }
  }
}

void LocalEngine::TakeArrivals() {
  MutexLock lock(mutex_);
  for (const std::string& id : closed_sessions_) {
    parts_.cache->CloseSession(id);
  }
  closed_sessions_.clear();
  while (!arrived_.empty()) {
    scheduler_.Add(std::move(arrived_.front()));
    arrived_.pop_front();
  }
  for (FlushRuns::Call& call : arrived_flushes_) {
    if (call.demote) {
      // RAM is to be given back.
      preload_.reset();
    }
    flushes_.Add(std::move(call));
  }
  arrived_flushes_.clear();
}

void LocalEngine::ContinuePreload(bool idle) {
  if (preload_ == nullptr) {
    return;
  }
  if (!idle) {
    preload_->Interrupt();
  } else if (!preload_->Advance()) {
    EndPreload();
  }
}

void LocalEngine::EndPreload() {
  if (const size_t finished = preload_->finished(); finished > 0) {
    parts_.logger->info(
        "the latest conversations are in RAM: {}, {} tokens of them read",
        finished, parts_.cache->stats().preloaded_tokens);
  }
  preload_.reset();
}

std::optional<FlushRuns::Hurry> LocalEngine::AskHurry() {
  MutexLock lock(mutex_);
  if (!hurried_at_.has_value()) {
    return std::nullopt;
  }
  return FlushRuns::Hurry{*hurried_at_, config_.least_stop_flush};
}

void LocalEngine::SendEndings(bool hurried) {
  if (hurried) {
    scheduler_.endings().SendAll();
  } else {
    scheduler_.endings().Settle();
  }
}

void LocalEngine::PublishStats() {
  const Scheduler::Counts& counts = scheduler_.counts();
  EngineStats stats;
  stats.kv = kv_sizes_;
  stats.cache = parts_.cache->stats();
  stats.finished = counts.finished;
  stats.failed = counts.failed;
  stats.cancelled = counts.cancelled;
  stats.paused = counts.paused;
  stats.followed = counts.followed;
  stats.prompt_tokens = counts.prompt_tokens;
  stats.computed_prompt_tokens = counts.computed_prompt_tokens;
  stats.generated_tokens = counts.generated_tokens;
  stats.steps = counts.steps;
  stats.running = static_cast<uint32_t>(scheduler_.running());
  MutexLock lock(mutex_);
  stats.requests = stats_.requests;
  stats.waiting = static_cast<uint32_t>(scheduler_.waiting() + arrived_.size());
  unfinished_ = stats.waiting + stats.running;
  stats_ = stats;
  if (unfinished_ == 0) {
    finished_.NotifyAll();
  }
}

}  // namespace everwarm::engine
