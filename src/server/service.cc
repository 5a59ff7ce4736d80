#include "server/service.h"

#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 2; ++i) {
    absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  }
  return hex;
}

int64_t UnixSeconds(Clock::Wall time) {
  return std::chrono::duration_cast<std::chrono::seconds>(
             time.time_since_epoch())
      .count();
}

}  // namespace

Service::Service(const Server::Config& config, const Clock* clock,
                 Logger logger)
    : clock_(clock),
      logger_(std::move(logger)),
      started_(clock->Now()),
      created_(UnixSeconds(clock->WallNow())),
      durable_wait_(config.durable_wait),
      gate_(config.max_open_requests),
      flush_gate_(config.max_open_flushes),
      model_id_(config.model_id),
      run_id_(RandomHex()) {}

void Service::SetReady(engine::Engine* engine, const TextFront* text_front) {
  engine_ = engine;
  text_front_ = text_front;
  if (model_id_.empty()) {
    model_id_ = engine->model().name;
  }
  ready_.store(true, std::memory_order_release);
}

absl::StatusOr<GenerationGate::Pass> Service::EnterBy(GenerationGate& gate) {
  std::optional<GenerationGate::Pass> pass = gate.Enter();
  if (pass) {
    return *std::move(pass);
  }
  if (gate.closed()) {
    return WithCode(absl::UnavailableError("the server is stopping"),
                    "stopping");
  }
  return absl::ResourceExhaustedError("too many requests are open");
}

std::chrono::seconds Service::uptime() const {
  return std::chrono::duration_cast<std::chrono::seconds>(clock_->Now() -
                                                          started_);
}

int64_t Service::Now() const { return UnixSeconds(clock_->WallNow()); }

std::string Service::NewId(const char* prefix) {
  return absl::StrCat(prefix, run_id_, "-", next_id_.fetch_add(1));
}

absl::Status Service::CheckTokens(const std::vector<TokenId>& tokens,
                                  const char* field) const {
  for (const TokenId token : tokens) {
    if (static_cast<uint32_t>(token) >= text_front_->vocab_size()) {
      return InvalidRequest(absl::StrCat("'", field, "' has the token ", token,
                                         ", and the vocabulary ends before ",
                                         text_front_->vocab_size()),
                            field);
    }
  }
  return absl::OkStatus();
}

}  // namespace everwarm::server
