#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cli/assembly.h"
#include "cli/commands.h"
#include "cli/ending.h"
#include "cli/signals.h"
#include "server/access.h"
#include "server/server.h"

namespace everwarm::cli {
namespace {

using std::chrono::milliseconds;

// How often the waiting main thread looks up.
constexpr milliseconds kTick{500};
// What HTTP workers get to send the last events.
constexpr milliseconds kDrain{2000};
// What is left of the store gets for its last calls to the disk when all is
// durable.
constexpr milliseconds kTeardown{10000};

std::string Address(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return absl::StrCat("http://", v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

// Ends the process at a signal while this exists: nothing that runs then needs
// an orderly end, and loading a model takes a while.
class StopWhileLoading {
 public:
  explicit StopWhileLoading(const Logger& logger)
      : thread_([this, logger] {
          while (!loaded_.load()) {
            if (WaitForStopSignal(kLoadTick).has_value()) {
              logger->info("stopped while the model was being loaded");
              std::_Exit(kExitOk);
            }
          }
        }) {}
  ~StopWhileLoading() {
    loaded_.store(true);
    thread_.join();
  }

 private:
  static constexpr milliseconds kLoadTick{50};
  std::atomic<bool> loaded_{false};
  std::thread thread_;
};

// Stops the engine within `timeout`; a second signal leaves no time for running
// replies and little for the disk. What is published is flushed in either case.
engine::FlushOutcome StopEngine(engine::Engine& engine, milliseconds timeout) {
  // Stop() waits for replies on another thread, so that this one hears signals.
  engine::FlushOutcome outcome;
  std::atomic<bool> done = false;
  std::thread stopper([&] {
    outcome = engine.Stop(timeout);
    done.store(true);
  });
  while (!done.load()) {
    if (WaitForStopSignal(milliseconds(20)).has_value()) {
      engine.CancelAll();
    }
  }
  stopper.join();
  return outcome;
}

// Stops both and takes the engine's parts down.
int Shutdown(server::Server& server, std::unique_ptr<Assembly> assembly,
             const ServeOptions& options, const Logger& logger) {
  const engine::EngineStats before = assembly->engine().stats();
  logger->info("stopping: {} running, {} waiting", before.running,
               before.waiting);
  server.BeginStop();
  const engine::FlushOutcome outcome = StopEngine(
      assembly->engine(), TimeForReplies(options.shutdown_timeout_ms));
  const int code = ExitCodeOf(outcome, *logger);
  const EndInTime last_resort(
      code, outcome.timed_out ? kDrain + milliseconds(1000) : kTeardown,
      logger);
  server.Stop(kDrain);
  if (outcome.timed_out) {
    // What is pending would be waited for below.
    EndNow(code, *logger);
  }
  assembly.reset();
  return code;
}

absl::StatusOr<std::unique_ptr<Assembly>> Load(const ModelOptions& options,
                                               const Clock* clock,
                                               const Logger& logger) {
  const StopWhileLoading stop(logger);
  return Assembly::Build(options, clock, logger);
}

}  // namespace

int Serve(ServeOptions options) {
  if (absl::Status status = options.Resolve(); !status.ok()) {
    return Fail(status);
  }
  if (options.host != "localhost" && !server::IsLoopback(options.host) &&
      options.api_key.empty() && !options.insecure_listen) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--host ", options.host,
                     " lets other machines in: set --api-key, or "
                     "--insecure-listen if that is meant")));
  }
  const Logger logger = MakeLogger(options.model.log_level);
  const SystemClock clock;
  server::Server::Config config;
  config.host = options.host;
  config.port = options.port;
  config.api_key = options.api_key;
  config.allowed_hosts = options.allow_hosts;
  config.durable_wait = options.durable_wait_ms;
  server::Server server(config, &clock, logger);
  if (absl::Status status = server.Start(); !status.ok()) {
    return Fail(status);
  }
  absl::StatusOr<std::unique_ptr<Assembly>> assembly =
      Load(options.model, &clock, logger);
  if (!assembly.ok()) {
    server.Stop(milliseconds(0));
    return Fail(assembly.status());
  }
  server.SetReady(&(*assembly)->engine(), &(*assembly)->text_front());
  std::printf("listening on %s\n",
              Address(options.host, server.port()).c_str());
  std::fflush(stdout);
  while (!WaitForStopSignal(kTick).has_value()) {
    (*assembly)->Tick();
  }
  return Shutdown(server, *std::move(assembly), options, logger);
}

}  // namespace everwarm::cli
