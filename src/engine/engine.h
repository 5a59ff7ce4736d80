// What the rest of the program sees of inference: requests in, events out.
//
// Threads:  all calls from any thread. A Reply is read by one thread.
// Blocks:   Submit() never; Reply::Next() until there is an event.
// Not here: HTTP and JSON (server/), blocks (cache/), files (store/).
#ifndef EVERWARM_ENGINE_ENGINE_H_
#define EVERWARM_ENGINE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cache/kv_cache.h"
#include "cache/tier.h"
#include "models/grammar.h"
#include "models/kv_sizes.h"
#include "models/model.h"

namespace everwarm::engine {

// Names and meanings are llama.cpp's samplers'.
struct SamplingParams {
  // 0: greedy, the most likely token, exactly.
  float temperature = 0.8f;
  int32_t top_k = 40;   // 0: off
  float top_p = 0.95f;  // 1: off
  float min_p = 0.05f;  // 0: off
  int32_t repeat_last_n = 64;
  float repeat_penalty = 1.0f;     // 1: off
  float frequency_penalty = 0.0f;  // 0: off
  float presence_penalty = 0.0f;   // 0: off
  // Nothing: a random one.
  std::optional<uint32_t> seed;
  // Added to the logits of these tokens.
  std::vector<std::pair<TokenId, float>> logit_bias;
};

// A session's id counts by its first so many bytes.
inline constexpr size_t kMaxSessionBytes = 256;

struct Request {
  std::vector<TokenId> prompt;
  // Who may share KV with it.
  std::string name_space;
  // 0: nothing is generated, the prompt is still computed and published.
  uint32_t max_tokens = 0;
  SamplingParams sampling;
  // Generation ends where one of these would appear; it is not part of the
  // text.
  std::vector<std::string> stops;
  bool ignore_eos = false;
  // The last event waits so long at most until all that was computed is
  // durable. 0: it does not wait.
  std::chrono::milliseconds wait_durable{0};
  // What the reply must follow; null: it is free. Shared, never changed.
  std::shared_ptr<const models::Grammar> grammar;
  // Control tokens whose text belongs to the reply; others have none.
  std::vector<TokenId> shown_control_tokens;
  // How likely each token of the reply was, beside so many of the likeliest;
  // nothing: not asked for.
  std::optional<uint32_t> top_logprobs;
  // A position in the prompt that later prompts share even where they leave
  // its end out; published like the prompt's end. 0: none.
  TokenPos boundary = 0;
  // What is computed for it is the newest state of that session and stays in
  // RAM longer than what is nobody's; a hint. Empty: none.
  std::string session;
};

enum class FinishReason {
  kStop,       // end of generation token, or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Reply::Cancel(), or the server stops
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  cache::Reuse reuse;
  // How much of the conversation, from its start, was durable when the reply
  // ended. The last generated token is never computed, so at most prompt_tokens
  // + completion_tokens - 1.
  uint32_t durable_tokens = 0;
  std::chrono::nanoseconds queued{0};   // waiting for its turn
  std::chrono::nanoseconds restore{0};  // waiting for the tier
  std::chrono::nanoseconds prefill{0};  // computing the prompt
  std::chrono::nanoseconds decode{0};   // from the first to the last token
};

// A token and the natural logarithm of its probability, by the model alone:
// before penalties, bias, temperature and grammar.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};
// A token of the reply and the likeliest at its place, most likely first.
struct ChosenToken {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

// A piece of the reply: whole UTF-8 characters, nothing of a stop string.
struct TextEvent {
  std::string text;
  // Only if asked for: the tokens that are complete with this piece.
  std::vector<ChosenToken> tokens = {};
};
// The last event of every reply that was not refused.
struct FinishedEvent {
  FinishReason reason = FinishReason::kStop;
  Usage usage;
  // The stop string that ended it; empty: none did.
  std::string stop = {};
};
// The last event of a reply that failed; kInternal or kResourceExhausted.
struct FailedEvent {
  absl::Status status;
};
using ReplyEvent = std::variant<TextEvent, FinishedEvent, FailedEvent>;

// One request's events. Destroying it cancels the request.
class Reply {
 public:
  virtual ~Reply() = default;
  // The next event, or nothing when `timeout` passed. After FinishedEvent or
  // FailedEvent there is nothing more to ask for.
  virtual std::optional<ReplyEvent> Next(std::chrono::milliseconds timeout) = 0;
  // Generation stops within a step; FinishedEvent still follows.
  virtual void Cancel() = 0;
};

struct EngineStats {
  models::KvSizes kv;
  cache::CacheStats cache;
  cache::TierStats tier;
  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  // Times that a request gave its blocks back for a while, for want of RAM.
  uint64_t paused = 0;
  // Requests that waited for another one to compute what both begin with.
  uint64_t followed = 0;
  uint32_t waiting = 0;
  uint32_t running = 0;
  uint64_t prompt_tokens = 0;
  uint64_t computed_prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t steps = 0;
};

struct FlushOutcome {
  cache::FlushReport report;
  std::chrono::milliseconds elapsed{0};
  // The deadline came first; the report says what is still pending.
  bool timed_out = false;

  // All that was published before is durable.
  bool succeeded() const { return report.durable() && !timed_out; }
  // Nothing is lost that could have been kept: without a tier there is nowhere
  // to keep it.
  bool nothing_lost() const { return succeeded() || report.no_tier; }
};

struct DrainOutcome {
  FlushOutcome flush;
  // Those that left RAM for it.
  uint64_t demoted_blocks = 0;
  // Of all slots that are in use afterwards.
  uint64_t ram_used_bytes = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const models::ModelInfo& model() const = 0;
  // Longest prompt plus reply, in tokens.
  virtual uint32_t context_size() const = 0;

  // Errors: kInvalidArgument, an empty prompt, a token beyond the vocabulary,
  // or
  //         prompt longer than context_size() - 1 (both counts are named);
  //         kResourceExhausted, too many requests wait;
  //         kUnavailable, the engine stops.
  virtual absl::StatusOr<std::unique_ptr<Reply>> Submit(Request request) = 0;

  // Makes what was published durable. Concurrent callers are welcome.
  virtual FlushOutcome Flush(std::chrono::milliseconds timeout) = 0;

  // Flushes, and drops from RAM all that is durable and not in use. Nothing is
  // lost by it, and replies go on.
  virtual DrainOutcome Drain(std::chrono::milliseconds timeout) = 0;

  // The session's states are like all others from now on. Nothing is deleted,
  // and nobody waits.
  virtual void CloseSession(std::string id) = 0;

  virtual EngineStats stats() const = 0;

  // Cuts all running and waiting replies short, within a step, and those to
  // come; flushes get a few seconds more. For a stop that is in a hurry.
  virtual void CancelAll() = 0;

  // Refuses new requests, lets running and waiting ones finish until the
  // deadline, then cancels them, publishes and flushes, the newest conversation
  // first. Idempotent. The flush has what is left of the time, and never less
  // than ten seconds.
  virtual FlushOutcome Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_ENGINE_H_
