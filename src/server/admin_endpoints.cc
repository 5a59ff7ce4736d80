#include "server/admin_endpoints.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "server/json_fields.h"
#include "server/stats_json.h"

namespace everwarm::server {

Routes AdminEndpoints::routes() {
  const auto to = [this](auto member) {
    return [this, member](const httplib::Request& request,
                          httplib::Response& response) {
      (this->*member)(request, response);
    };
  };
  return {
      {"GET", "/health", to(&AdminEndpoints::Health)},
      {"GET", "/stats", to(&AdminEndpoints::Stats)},
      {"POST", "/admin/cache/flush", to(&AdminEndpoints::Flush)},
      {"POST", "/admin/cache/session/close", to(&AdminEndpoints::CloseSession)},
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
  const absl::StatusOr<GenerationGate::Pass> pass = service_->EnterToFlush();
  if (!pass.ok()) {
    SetError(response, RefusalError(pass.status()));
    return;
  }
  const engine::FlushOutcome outcome = service_->engine().Flush(flush_timeout_);
  SetJson(response, outcome.succeeded() ? 200 : 503, FlushJson(outcome));
}

void AdminEndpoints::CloseSession(const httplib::Request& request,
                                  httplib::Response& response) {
  const auto id = [&]() -> absl::StatusOr<std::string> {
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(std::optional<std::string> session,
                        OptionalString(body, "session_id"));
    if (session.value_or("").empty()) {
      return InvalidRequest("'session_id' is missing", "session_id");
    }
    return session->substr(0, engine::kMaxSessionBytes);
  }();
  if (!id.ok()) {
    SetError(response, RefusalError(id.status()));
    return;
  }
  service_->engine().CloseSession(*id);
  SetJson(response, 200, {{"closed", *id}});
}

void AdminEndpoints::Drain(const httplib::Request&,
                           httplib::Response& response) {
  const absl::StatusOr<GenerationGate::Pass> pass = service_->EnterToFlush();
  if (!pass.ok()) {
    SetError(response, RefusalError(pass.status()));
    return;
  }
  const engine::DrainOutcome outcome = service_->engine().Drain(flush_timeout_);
  SetJson(response, outcome.flush.succeeded() ? 200 : 503, DrainJson(outcome));
}

}  // namespace everwarm::server
