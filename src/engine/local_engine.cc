#include "engine/local_engine.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace everwarm::engine {
namespace {

using std::chrono::milliseconds;

// How long the idle engine sleeps when nobody wakes it: failed writes are tried
// again and budgets kept at this pace.
constexpr milliseconds kIdleTick{1000};
// The same while somebody waits for a flush.
constexpr milliseconds kFlushTick{20};
// Blocks a long reply fills between two publications.
constexpr TokenPos kBlocksPerPublication = 4;

bool ResumesAnywhere(const models::Model& model) {
  return std::all_of(
      model.groups().begin(), model.groups().end(),
      [](const models::ModelGroup& group) { return group.window == 0; });
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
  if (max_batch == 0 || prefill_chunk == 0 || prefill_chunk_shared == 0) {
    return absl::InvalidArgumentError(
        "batch and prefill sizes must be at least 1");
  }
  return absl::OkStatus();
}

LocalEngine::LocalEngine(const Config& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      wake_up_(std::make_shared<WakeUp>()),
      block_tokens_(parts_.model->groups()[0].geometry.block_tokens()),
      publish_as_it_fills_(ResumesAnywhere(*parts_.model)) {
  parts_.tier->SetWakeUp([wake_up = wake_up_] { wake_up->Notify(); });
  for (const models::ModelGroup& group : parts_.model->groups()) {
    counts_.kv_bytes_per_token += group.geometry.token_bytes();
  }
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
  if (request.prompt.size() >= config_.context_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", request.prompt.size(),
                     " tokens, but the context of ", config_.context_size,
                     " tokens has room for ", config_.context_size - 1,
                     " and one of the reply"));
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

std::future<FlushOutcome> LocalEngine::StartFlush(milliseconds timeout) {
  auto call = std::make_unique<FlushCall>();
  call->began = parts_.clock->Now();
  call->deadline = call->began + timeout;
  std::future<FlushOutcome> outcome = call->outcome.get_future();
  {
    MutexLock lock(mutex_);
    if (quit_) {
      call->outcome.set_value(FlushOutcome{.timed_out = true});
      return outcome;
    }
    arrived_flushes_.push_back(std::move(call));
  }
  wake_up_->Notify();
  return outcome;
}

FlushOutcome LocalEngine::Flush(milliseconds timeout) {
  return StartFlush(timeout).get();
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

void LocalEngine::CancelAll() {
  cancel_all_.store(true);
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
    CancelAll();
    // A cancelled reply ends within one step.
    while (unfinished_ > 0) {
      finished_.WaitFor(mutex_, milliseconds(100));
    }
  }
  // What is left of the time, and never less than a moment to write.
  const auto left = std::chrono::duration_cast<milliseconds>(
      end - std::chrono::steady_clock::now());
  const FlushOutcome outcome =
      StartFlush(std::max(left, milliseconds(10000))).get();
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
    DropCancelled();
    StartWaiting();
    FinishLoads();
    const bool computing = GatherStep();
    if (computing) {
      ComputeStep();
    }
    SettleFlushes();
    PublishStats();
    bool quit = false;
    {
      MutexLock lock(mutex_);
      quit = quit_ && arrived_.empty() && arrived_flushes_.empty();
    }
    if (quit && waiting_.empty() && running_.empty() && flushes_.empty()) {
      return;
    }
    if (!computing) {
      wake_up_->Wait(flushes_.empty() ? kIdleTick : kFlushTick);
    }
  }
}

void LocalEngine::TakeArrivals() {
  MutexLock lock(mutex_);
  while (!arrived_.empty()) {
    waiting_.push_back(std::move(arrived_.front()));
    arrived_.pop_front();
  }
  for (std::unique_ptr<FlushCall>& call : arrived_flushes_) {
    flushes_.push_back(std::move(call));
  }
  arrived_flushes_.clear();
}

void LocalEngine::DropCancelled() {
  const bool all = cancel_all_.load();
  for (auto& generation : running_) {
    if (all || generation->cancelled()) {
      generation->Finish(FinishReason::kCancelled);
      Settle(*generation);
    }
  }
  std::erase_if(waiting_, [&](std::unique_ptr<Generation>& generation) {
    if (!all && !generation->cancelled()) {
      return false;
    }
    generation->Finish(FinishReason::kCancelled);
    Count(*generation);
    return true;
  });
  DropFinished();
}

void LocalEngine::StartWaiting() {
  while (!waiting_.empty() && running_.size() < config_.max_batch) {
    std::unique_ptr<Generation> generation = std::move(waiting_.front());
    waiting_.pop_front();
    const Request& request = generation->request();
    generation->Start(parts_.cache->Take(request.prompt, request.name_space));
    counts_.prompt_tokens += request.prompt.size();
    running_.push_back(std::move(generation));
  }
}

void LocalEngine::FinishLoads() {
  for (auto& generation : running_) {
    if (generation->phase() == Generation::Phase::kLoading &&
        generation->sequence()->ready()) {
      generation->FinishLoading();
    }
  }
}

bool LocalEngine::GatherStep() {
  batch_.Clear();
  const size_t num_groups = parts_.model->groups().size();
  const auto add = [&](Generation& generation, size_t limit) {
    const absl::Span<const TokenId> tokens = generation.NextTokens(limit);
    const absl::Status room = parts_.cache->Reserve(
        *generation.sequence(), static_cast<TokenPos>(tokens.size()));
    if (!room.ok()) {
      generation.Fail(room);
      Settle(generation);
      return;
    }
    batch_.Add(&generation, tokens, num_groups);
  };
  for (auto& generation : running_) {
    if (generation->phase() == Generation::Phase::kDecode) {
      add(*generation, 1);
    }
  }
  // One prompt at a time, in order of arrival.
  const bool shared = !batch_.empty();
  for (auto& generation : running_) {
    if (generation->phase() == Generation::Phase::kPrefill) {
      const uint32_t chunk =
          shared ? config_.prefill_chunk_shared : config_.prefill_chunk;
      // Chunks end where blocks do, so that whole blocks can be published.
      const uint32_t behind = generation->sequence()->length() % block_tokens_;
      add(*generation, chunk > behind ? chunk - behind : chunk);
      break;
    }
  }
  DropFinished();
  return !batch_.empty();
}

void LocalEngine::ComputeStep() {
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
  DropFinished();
}

void LocalEngine::TakeResult(const Batch::Part& part,
                             absl::Span<const float> logits) {
  Generation& generation = *part.generation;
  cache::Sequence& sequence = *generation.sequence();
  parts_.cache->Append(sequence, part.tokens);
  const bool prefill = generation.phase() == Generation::Phase::kPrefill;
  const bool prompt_done =
      prefill && sequence.length() == generation.request().prompt.size();
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
  const TokenPos every =
      prefill ? block_tokens_ : block_tokens_ * kBlocksPerPublication;
  if (generation.phase() == Generation::Phase::kFinished) {
    Settle(generation);
  } else if (prompt_done ||
             (publish_as_it_fills_ && sequence.length() % every == 0)) {
    parts_.cache->Publish(sequence);
  }
}

void LocalEngine::DropFinished() {
  std::erase_if(running_, [](const std::unique_ptr<Generation>& generation) {
    return generation->phase() == Generation::Phase::kFinished;
  });
}

void LocalEngine::Settle(Generation& generation) {
  cache::Sequence* sequence = generation.sequence();
  // Whatever was computed is right, also when the request was cancelled.
  if (sequence != nullptr && sequence->ready() && sequence->length() > 0) {
    parts_.cache->Publish(*sequence);
  }
  generation.ReleaseSequence();
  Count(generation);
}

void LocalEngine::Count(const Generation& generation) {
  if (!generation.reason().has_value()) {
    ++counts_.failed;
  } else if (*generation.reason() == FinishReason::kCancelled) {
    ++counts_.cancelled;
  } else {
    ++counts_.finished;
  }
}

void LocalEngine::SettleFlushes() {
  for (auto& call : flushes_) {
    if (call->ticket == 0) {
      call->ticket = parts_.cache->BeginFlush();
    }
    const auto now = parts_.clock->Now();
    FlushOutcome outcome;
    outcome.elapsed =
        std::chrono::duration_cast<milliseconds>(now - call->began);
    if (auto report = parts_.cache->FlushOutcome(call->ticket)) {
      outcome.report = *report;
    } else if (now >= call->deadline) {
      outcome.report = parts_.cache->FlushNow(call->ticket);
      outcome.timed_out = true;
    } else {
      continue;
    }
    call->outcome.set_value(outcome);
    call.reset();
  }
  std::erase(flushes_, nullptr);
}

void LocalEngine::PublishStats() {
  const cache::CacheStats cache = parts_.cache->stats();
  MutexLock lock(mutex_);
  const uint64_t requests = stats_.requests;
  stats_ = counts_;
  stats_.requests = requests;
  stats_.cache = cache;
  stats_.waiting = static_cast<uint32_t>(waiting_.size() + arrived_.size());
  stats_.running = static_cast<uint32_t>(running_.size());
  const auto unfinished = static_cast<uint32_t>(
      arrived_.size() + waiting_.size() + running_.size());
  unfinished_ = unfinished;
  if (unfinished == 0) {
    finished_.NotifyAll();
  }
}

}  // namespace everwarm::engine
