// The options of the program, as a person writes them and as the parts take
// them.
#ifndef EVERWARM_CLI_OPTIONS_H_
#define EVERWARM_CLI_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/kv_scheme.h"

namespace everwarm::cli {

// What `serve` and `run` share: a model, its cache, its threads.
struct ModelOptions {
  std::string model;
  uint32_t context = 8192;
  uint32_t threads = 0;  // 0: one for each core, or for each of `cpus`
  std::string cpus;      // empty: any
  uint32_t max_batch = 8;
  uint32_t block_tokens = 64;
  uint32_t prefill_chunk = 512;
  uint32_t state_every = 512;
  double max_slowdown = 3;
  std::string max_gap = "600ms";
  std::string kv = "f16";
  std::string ram_cache = "4GiB";
  std::string preload;       // empty: DefaultPreload()
  std::string ram_hard_cap;  // empty: a quarter more than the target
  std::string demote_idle = "300s";
  std::string cache_dir;  // empty: the user's cache directory; "off": none
  std::string ssd_cache = "50GiB";
  std::string ssd_min_free = "1GiB";
  std::string verify = "on";
  std::string scrub = "0";
  std::string log_level = "info";

  models::KvScheme kv_scheme;
  std::vector<uint32_t> cpu_list;
  uint64_t ram_cache_bytes = 0;
  uint64_t preload_bytes = 0;
  uint64_t ram_hard_cap_bytes = 0;
  std::chrono::milliseconds demote_idle_ms{0};
  std::chrono::milliseconds max_gap_ms{0};
  uint64_t ssd_cache_bytes = 0;
  uint64_t ssd_min_free_bytes = 0;
  uint64_t scrub_bytes_per_second = 0;
  bool verify_reads = true;

  // Adds the options to a subcommand.
  void Register(CLI::App& app);
  // Fills the parsed members.
  // Errors: kInvalidArgument names the option and the value.
  absl::Status Resolve();

 private:
  absl::Status ResolveThreads();
};

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string api_key;
  bool insecure_listen = false;
  std::vector<std::string> allow_hosts;
  std::string shutdown_timeout = "120s";
  std::string durable_wait = "30s";
  std::chrono::milliseconds shutdown_timeout_ms{0};
  std::chrono::milliseconds durable_wait_ms{0};

  void Register(CLI::App& app);
  absl::Status Resolve();
};

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  bool raw = false;
  uint32_t max_tokens = 256;
  float temperature = 0.8f;
  std::optional<uint32_t> seed;

  void Register(CLI::App& app);
  absl::Status Resolve();
};

struct CacheOptions {
  std::string cache_dir;
  bool json = false;

  void Register(CLI::App& app);
};

struct CacheVerifyOptions {
  std::string cache_dir;

  void Register(CLI::App& app);
};

struct CacheGcOptions {
  std::string cache_dir;
  // First digits of the fingerprints whose blocks stay; empty: all do.
  std::vector<std::string> keep;

  void Register(CLI::App& app);
};

struct CacheRmOptions {
  std::string cache_dir;
  bool all = false;
  std::string older_than;
  std::string session;

  void Register(CLI::App& app);
};

struct DoctorOptions {
  std::string cache_dir;

  void Register(CLI::App& app);
};

// $XDG_CACHE_HOME/everwarm, else ~/.cache/everwarm.
// Errors: kFailedPrecondition, neither variable is set.
absl::StatusOr<std::string> DefaultCacheDir();

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_OPTIONS_H_
