#include "server/admin_endpoints.h"

#include <string_view>

#include "server/stats_json.h"

namespace everwarm::server {

Routes AdminEndpoints::routes() {
  const auto to = [this](auto member) {
    return [this, member](const httplib::Request& request,
                          httplib::Response& response) {
      (this->*member)(request, response);
    };
  };
  return {{"GET", "/health", to(&AdminEndpoints::Health)},
          {"GET", "/stats", to(&AdminEndpoints::Stats)},
          {"POST", "/admin/cache/flush", to(&AdminEndpoints::Flush)},
          {"POST", "/admin/drain", to(&AdminEndpoints::Drain)}};
}

void AdminEndpoints::Health(const httplib::Request&,
                            httplib::Response& response) {
  const char* status = "ok";
  if (service_->gate().closed()) {
    status = "stopping";
  } else if (!service_->ready()) {
    status = "loading";
  }
  SetJson(response, std::string_view(status) == "ok" ? 200 : 503,
          {{"status", status}});
}

void AdminEndpoints::Stats(const httplib::Request&,
                           httplib::Response& response) {
  const engine::Engine& engine = service_->engine();
  const engine::EngineStats stats = engine.stats();
  const StatsInput input = {.model_id = service_->model_id(),
                            .model = engine.model(),
                            .context_size = engine.context_size(),
                            .engine = stats,
                            .uptime = service_->uptime(),
                            .open_requests = service_->gate().open()};
  SetJson(response, 200, StatsJson(input));
}

void AdminEndpoints::Flush(const httplib::Request&,
                           httplib::Response& response) {
  const absl::StatusOr<GenerationGate::Pass> pass = service_->Enter();
  if (!pass.ok()) {
    SetError(response, RefusalError(pass.status()));
    return;
  }
  const engine::FlushOutcome outcome = service_->engine().Flush(flush_timeout_);
  SetJson(response, outcome.succeeded() ? 200 : 503, FlushJson(outcome));
}

void AdminEndpoints::Drain(const httplib::Request&,
                           httplib::Response& response) {
  const absl::StatusOr<GenerationGate::Pass> pass = service_->Enter();
  if (!pass.ok()) {
    SetError(response, RefusalError(pass.status()));
    return;
  }
  const engine::DrainOutcome outcome = service_->engine().Drain(flush_timeout_);
  SetJson(response, outcome.flush.succeeded() ? 200 : 503, DrainJson(outcome));
}

}  // namespace everwarm::server
