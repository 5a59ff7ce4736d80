// everwarm: an LLM server whose KV cache never goes cold.

#include <cstdio>
#include <exception>
#include <string>

#include "CLI/CLI.hpp"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "spdlog/sinks/stdout_color_sinks.h"

namespace everwarm::cli {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "everwarm: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

Logger MakeLogger(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "everwarm", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  return logger;
}

namespace {

int Main(int argc, char** argv) {
  CLI::App app{
      "An LLM server whose KV cache never goes cold: conversations go on at "
      "once after a switch, a restart or a crash."};
  app.name("everwarm");
  app.set_version_flag("--version", EVERWARM_VERSION);
  app.set_config("--config", "", "Options from a TOML file");
  app.require_subcommand(1);
  app.fallthrough(false);

  ServeOptions serve;
  CLI::App* serve_app = app.add_subcommand(
      "serve",
      "Answer OpenAI and Anthropic requests over HTTP with a GGUF model");
  serve.Register(*serve_app);
  RunOptions run;
  CLI::App* run_app =
      app.add_subcommand("run",
                         "Answer one prompt on standard output; ends with 3 "
                         "if it could not be written to the disk");
  run.Register(*run_app);
  CLI::App* cache_app =
      app.add_subcommand("cache", "Look after a cache directory");
  cache_app->require_subcommand(1);
  CacheOptions cache;
  CLI::App* ls_app = cache_app->add_subcommand(
      "ls", "List the models and conversations that a directory keeps");
  cache.Register(*ls_app);
  CacheVerifyOptions verify;
  CLI::App* verify_app = cache_app->add_subcommand(
      "verify", "Read every block and report each that is damaged");
  verify.Register(*verify_app);
  CacheGcOptions gc;
  CLI::App* gc_app = cache_app->add_subcommand(
      "gc",
      "Remove what dead processes left and what was set aside as damaged");
  gc.Register(*gc_app);
  CacheRmOptions rm;
  CLI::App* rm_app = cache_app->add_subcommand(
      "rm", "Remove blocks; no server may be using the directory");
  rm.Register(*rm_app);
  DoctorOptions doctor;
  CLI::App* doctor_app = app.add_subcommand(
      "doctor",
      "Try out what the disk of a cache directory can be relied on "
      "for");
  doctor.Register(*doctor_app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      return app.exit(error);
    }
    std::fprintf(stderr, "everwarm: %s (see everwarm --help)\n", error.what());
    return kExitUsage;
  }
  if (serve_app->parsed()) {
    return Serve(serve);
  }
  if (run_app->parsed()) {
    return RunPrompt(run);
  }
  if (doctor_app->parsed()) {
    return Doctor(doctor);
  }
  if (verify_app->parsed()) {
    return CacheVerify(verify);
  }
  if (gc_app->parsed()) {
    return CacheGc(gc);
  }
  if (rm_app->parsed()) {
    return CacheRm(rm);
  }
  return CacheLs(cache);
}

}  // namespace
}  // namespace everwarm::cli

int main(int argc, char** argv) {
  everwarm::cli::BlockStopSignals();
  try {
    return everwarm::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "everwarm: %s\n", error.what());
    return everwarm::cli::kExitFailed;
  }
}
