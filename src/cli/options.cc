#include "cli/options.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace everwarm::cli {
namespace {

absl::Status BytesOption(const char* name, const std::string& text,
                         uint64_t* bytes) {
  const absl::StatusOr<uint64_t> parsed = ParseBytes(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", parsed.status().message()));
  }
  *bytes = *parsed;
  return absl::OkStatus();
}

// "--ram-cache" is also EVERWARM_RAM_CACHE.
template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& name, T& value,
                 const std::string& help) {
  std::string variable = "EVERWARM_" + name.substr(2);
  std::replace(variable.begin(), variable.end(), '-', '_');
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return app.add_option(name, value, help)->envname(variable);
}

}  // namespace

void ModelOptions::Register(CLI::App& app) {
  app.add_option("MODEL", model, "The model, a GGUF file")->required();
  Add(app, "--ctx", context, "Longest prompt plus reply, in tokens")
      ->check(CLI::Range(2u, 1u << 24))
      ->capture_default_str();
  Add(app, "--threads", threads, "Threads that compute; 0: one for each core")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
  Add(app, "--max-batch", max_batch, "Replies that run at once; others wait")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  Add(app, "--prefill-chunk", prefill_chunk,
      "Most prompt tokens computed in one step")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  Add(app, "--max-slowdown", max_slowdown,
      "How many times as long running replies may take for a token while "
      "prompts of others are computed")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  Add(app, "--block-tokens", block_tokens,
      "Tokens of a block: 16, 32, 64, 128 or 256; a directory keeps blocks of "
      "each size apart")
      ->check(CLI::IsMember({16u, 32u, 64u, 128u, 256u}))
      ->capture_default_str();
  Add(app, "--kv", kv, "How keys and values are kept")
      ->check(CLI::IsMember({"f16"}))
      ->capture_default_str();
  Add(app, "--ram-cache", ram_cache,
      "RAM for blocks, live and cached; 0 keeps only what runs")
      ->capture_default_str();
  Add(app, "--cache-dir", cache_dir,
      "Where blocks are kept on disk, or 'off' (default: "
      "$XDG_CACHE_HOME/everwarm or ~/.cache/everwarm)");
  Add(app, "--ssd-cache", ssd_cache,
      "Most that the directory may take on the disk")
      ->capture_default_str();
  Add(app, "--min-free", min_free,
      "Space that is left free on the disk of the directory")
      ->capture_default_str();
  Add(app, "--verify", verify,
      "Check every block's checksum when it is read: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  Add(app, "--log-level", log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

absl::Status ModelOptions::Resolve() {
  EW_RETURN_IF_ERROR(BytesOption("--ram-cache", ram_cache, &ram_cache_bytes));
  EW_RETURN_IF_ERROR(BytesOption("--ssd-cache", ssd_cache, &ssd_cache_bytes));
  EW_RETURN_IF_ERROR(BytesOption("--min-free", min_free, &min_free_bytes));
  verify_reads = verify == "on";
  if (threads == 0) {
    threads = std::max(1u, std::thread::hardware_concurrency());
  }
  if (cache_dir.empty()) {
    EW_ASSIGN_OR_RETURN(cache_dir, DefaultCacheDir());
  }
  return absl::OkStatus();
}

void ServeOptions::Register(CLI::App& app) {
  model.Register(app);
  Add(app, "--host", host, "Address to listen on")->capture_default_str();
  Add(app, "--port", port, "Port to listen on; 0: any free one")
      ->capture_default_str();
  Add(app, "--api-key", api_key,
      "Key that every request but /health must bring");
  app.add_flag("--insecure-listen", insecure_listen,
               "Let other machines in without a key");
  Add(app, "--shutdown-timeout", shutdown_timeout,
      "How long a stop waits for running replies and the disk")
      ->capture_default_str();
}

absl::Status ServeOptions::Resolve() {
  EW_RETURN_IF_ERROR(model.Resolve());
  const absl::StatusOr<std::chrono::milliseconds> parsed =
      ParseDuration(shutdown_timeout);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shutdown-timeout: ", parsed.status().message()));
  }
  shutdown_timeout_ms = *parsed;
  return absl::OkStatus();
}

void RunOptions::Register(CLI::App& app) {
  model.Register(app);
  app.add_option("-p,--prompt", prompt, "What to say to the model")->required();
  app.add_flag("--raw", raw,
               "Continue the text as it is, without a chat "
               "template");
  Add(app, "--max-tokens", max_tokens, "Most tokens of the reply")
      ->capture_default_str();
  Add(app, "--temperature", temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  Add(app, "--seed", seed, "Makes a random reply repeatable");
}

absl::Status RunOptions::Resolve() { return model.Resolve(); }

void CacheOptions::Register(CLI::App& app) {
  Add(app, "--cache-dir", cache_dir,
      "The directory (default: $XDG_CACHE_HOME/everwarm or "
      "~/.cache/everwarm)");
  app.add_flag("--json", json, "Print JSON");
}

absl::StatusOr<std::string> DefaultCacheDir() {
  // Read once, before any thread exists.
  if (const char* dir = std::getenv("XDG_CACHE_HOME");  // NOLINT
      dir != nullptr && *dir != '\0') {
    return absl::StrCat(dir, "/everwarm");
  }
  if (const char* home = std::getenv("HOME");  // NOLINT
      home != nullptr && *home != '\0') {
    return absl::StrCat(home, "/.cache/everwarm");
  }
  return absl::FailedPreconditionError(
      "neither XDG_CACHE_HOME nor HOME is set; name a directory with "
      "--cache-dir, or --cache-dir off");
}

}  // namespace everwarm::cli
