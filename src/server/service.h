// What all endpoints of one server share: the engine once it is there, the gate
// for long requests, names and ids.
//
// Threads:  SetReady() from one; the rest from any.
// Not here: what a path answers (the files called ..._endpoints).
#ifndef EVERWARM_SERVER_SERVICE_H_
#define EVERWARM_SERVER_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/engine.h"
#include "server/generation_gate.h"
#include "server/server.h"
#include "server/text_front.h"

namespace everwarm::server {

class Service {
 public:
  // The clock outlives this object.
  Service(const Server::Config& config, const Clock* clock, Logger logger);

  // Both outlive this object.
  void SetReady(engine::Engine* engine, const TextFront* text_front);
  bool ready() const { return ready_.load(std::memory_order_acquire); }

  GenerationGate& gate() { return gate_; }
  // A place inside the gate.
  // Errors: kResourceExhausted when it is full, kUnavailable when it is closed.
  absl::StatusOr<GenerationGate::Pass> Enter() { return EnterBy(gate_); }
  // The same for a flush, which has places of its own.
  absl::StatusOr<GenerationGate::Pass> EnterToFlush() {
    return EnterBy(flush_gate_);
  }
  void CloseGates() {
    gate_.Close();
    flush_gate_.Close();
  }

  // What runs is cut off at its next look at the connection.
  void CutOff() { cut_off_.store(true); }
  bool cut_off() const { return cut_off_.load(); }

  // Requires of these three: ready().
  engine::Engine& engine() const { return *engine_; }
  const TextFront& text_front() const { return *text_front_; }
  const std::string& model_id() const { return model_id_; }

  // How long the end of a reply waits at most, where it is asked to.
  std::chrono::milliseconds durable_wait() const { return durable_wait_; }
  const Clock& clock() const { return *clock_; }
  spdlog::logger& logger() const { return *logger_; }
  std::chrono::seconds uptime() const;
  // When this server began, and now, in seconds since 1970.
  int64_t created() const { return created_; }
  int64_t Now() const;
  // An id that no other reply has, also not one of an earlier run.
  std::string NewId(const char* prefix);

  // Errors: kInvalidArgument names the field; a token beyond the vocabulary.
  absl::Status CheckTokens(const std::vector<TokenId>& tokens,
                           const char* field) const;

 private:
  static absl::StatusOr<GenerationGate::Pass> EnterBy(GenerationGate& gate);

  const Clock* const clock_;
  const Logger logger_;
  const Clock::Monotonic started_;
  const int64_t created_;
  const std::chrono::milliseconds durable_wait_;
  GenerationGate gate_;
  GenerationGate flush_gate_;
  std::atomic<bool> cut_off_{false};

  // Written once, before ready_.
  engine::Engine* engine_ = nullptr;
  const TextFront* text_front_ = nullptr;
  std::string model_id_;
  std::atomic<bool> ready_{false};

  // Ids of replies: a part that differs between runs, and a count.
  const std::string run_id_;
  std::atomic<uint64_t> next_id_{0};
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_SERVICE_H_
