// The engine's counters and a flush's outcome as JSON.
//
// Threads: pure, any.
#ifndef EVERWARM_SERVER_STATS_JSON_H_
#define EVERWARM_SERVER_STATS_JSON_H_

#include <chrono>
#include <cstdint>
#include <string_view>

#include "engine/engine.h"
#include "server/json_text.h"

namespace everwarm::server {

struct StatsInput {
  std::string_view model_id;
  const models::ModelInfo& model;
  uint32_t context_size = 0;
  const engine::EngineStats& engine;
  std::chrono::seconds uptime{0};
  // Requests that HTTP workers hold: running, waiting, and flushes.
  uint32_t open_requests = 0;
};

Json StatsJson(const StatsInput& input);

// The evidence; "reason" is there when it did not succeed.
Json FlushJson(const engine::FlushOutcome& outcome);
Json DrainJson(const engine::DrainOutcome& outcome);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_STATS_JSON_H_
