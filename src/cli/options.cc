#include "cli/options.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_list.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "cli/kv_config.h"
#include "engine/publication_points.h"

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

absl::Status DurationOption(const char* name, const std::string& text,
                            std::chrono::milliseconds* duration) {
  const absl::StatusOr<std::chrono::milliseconds> parsed = ParseDuration(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", parsed.status().message()));
  }
  *duration = *parsed;
  return absl::OkStatus();
}

// Without a wish of the user: a second of a slow disk, and room for what is
// asked for next.
uint64_t DefaultPreload(uint64_t target) {
  return std::min(target / 4, uint64_t{1} << 30);
}

// Without a wish of the user: blocks that are not durable yet may pass the
// target by this much.
uint64_t DefaultHardCap(uint64_t target) {
  return target + std::max(target / 4, 256 * kMiB);
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

// Empty: there is none.
std::string StateEveryProblem(const std::string& text) {
  uint32_t tokens = 0;
  if (absl::SimpleAtoi(text, &tokens) && engine::MayBeStateEvery(tokens)) {
    return "";
  }
  return absl::StrCat(text, " is not a power of two from ",
                      engine::kLeastStateEvery, " on, and not 0");
}

// A key that is empty protects nothing, and is hardly what was meant.
std::string EmptyProblem(const std::string& text) {
  return text.empty() ? "it is empty; leave it away to serve without a key"
                      : "";
}

void AddCacheDir(CLI::App& app, std::string& cache_dir) {
  Add(app, "--cache-dir", cache_dir,
      "The directory (default: $XDG_CACHE_HOME/everwarm or "
      "~/.cache/everwarm)");
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
  Add(app, "--cpus", cpus,
      "CPUs for the threads that compute, such as 0-3,6: each stays on one of "
      "its own (default: wherever the system puts them)");
  Add(app, "--max-batch", max_batch, "Replies that run at once; others wait")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  Add(app, "--prefill-chunk", prefill_chunk,
      "Most prompt tokens computed in one step")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  Add(app, "--state-every", state_every,
      "Tokens between two states that a recurrent model keeps on its way, from "
      "which an edited prompt goes on; a power of two, 64 at least, 0: none")
      ->check(StateEveryProblem, "UINT in {0, 64, 128, 256, ...}")
      ->capture_default_str();
  Add(app, "--max-slowdown", max_slowdown,
      "How many times as long running replies may take for a token while "
      "prompts of others are computed")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  Add(app, "--max-gap", max_gap,
      "How long one of 28 tokens of a running reply may take at most while "
      "prompts of others are computed, where replies are so fast that this "
      "pays; 0: never longer than --max-slowdown")
      ->capture_default_str();
  Add(app, "--block-tokens", block_tokens,
      "Tokens of a block: 16, 32, 64, 128 or 256; a directory keeps blocks of "
      "each size apart")
      ->check(CLI::IsMember({16u, 32u, 64u, 128u, 256u}))
      ->capture_default_str();
  Add(app, "--kv", kv,
      "How keys and values are kept: f16, q8, q4, turbo[:kKvV], each with "
      "+SCHEME:N for the first N tokens (q8+f16:64), or a FILE.json with bits "
      "for each layer")
      ->capture_default_str();
  Add(app, "--ram-cache", ram_cache,
      "RAM for blocks, live and cached; 0 keeps only what runs")
      ->capture_default_str();
  Add(app, "--ram-hard-cap", ram_hard_cap,
      "Most RAM for blocks, when many wait for the disk: beyond it the oldest "
      "of these are given up, and replies pause (default: --ram-cache and a "
      "quarter more, 256MiB at least)");
  Add(app, "--preload", preload,
      "RAM that the latest conversations are read into at the start, while "
      "nobody asks; 0: none (default: a quarter of --ram-cache, 1GiB at most)");
  Add(app, "--demote-idle", demote_idle,
      "Blocks that are on the disk leave RAM when nobody has used them for so "
      "long; 0: never")
      ->capture_default_str();
  Add(app, "--cache-dir", cache_dir,
      "Where blocks are kept on disk, or 'off' (default: "
      "$XDG_CACHE_HOME/everwarm or ~/.cache/everwarm)");
  Add(app, "--ssd-cache", ssd_cache,
      "Most that the directory may take on the disk")
      ->capture_default_str();
  Add(app, "--ssd-min-free", ssd_min_free,
      "Space that is left free on the disk of the directory, but no more than "
      "a tenth of it")
      ->capture_default_str();
  Add(app, "--verify", verify,
      "Check every block's checksum when it is read: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  Add(app, "--scrub", scrub,
      "Read blocks again in the background, at so many bytes a second (such as "
      "1MiB), to find damage before it matters; 0: off")
      ->capture_default_str();
  Add(app, "--log-level", log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

absl::Status ModelOptions::ResolveThreads() {
  if (!cpus.empty()) {
    absl::StatusOr<std::vector<uint32_t>> list = ParseCpuList(cpus);
    if (!list.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--cpus: ", list.status().message()));
    }
    cpu_list = *std::move(list);
    const std::vector<uint32_t> available = AvailableCpus();
    for (const uint32_t cpu : cpu_list) {
      if (!available.empty() &&
          !std::binary_search(available.begin(), available.end(), cpu)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--cpus: this process may not run on CPU ", cpu));
      }
    }
  }
  if (threads == 0) {
    threads = cpu_list.empty()
                  ? std::max(1u, std::thread::hardware_concurrency())
                  : static_cast<uint32_t>(cpu_list.size());
  }
  if (!cpu_list.empty() && cpu_list.size() < threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads ", threads, " is more than --cpus ", cpus,
                     " has: ", cpu_list.size()));
  }
  return absl::OkStatus();
}

absl::Status ModelOptions::Resolve() {
  absl::StatusOr<models::KvScheme> scheme = ReadKvScheme(kv);
  if (!scheme.ok()) {
    return absl::Status(scheme.status().code(),
                        absl::StrCat("--kv: ", scheme.status().message()));
  }
  kv_scheme = *std::move(scheme);
  EW_RETURN_IF_ERROR(BytesOption("--ram-cache", ram_cache, &ram_cache_bytes));
  EW_RETURN_IF_ERROR(BytesOption("--ssd-cache", ssd_cache, &ssd_cache_bytes));
  EW_RETURN_IF_ERROR(
      BytesOption("--ssd-min-free", ssd_min_free, &ssd_min_free_bytes));
  EW_RETURN_IF_ERROR(
      DurationOption("--demote-idle", demote_idle, &demote_idle_ms));
  EW_RETURN_IF_ERROR(DurationOption("--max-gap", max_gap, &max_gap_ms));
  ram_hard_cap_bytes = DefaultHardCap(ram_cache_bytes);
  if (!ram_hard_cap.empty()) {
    EW_RETURN_IF_ERROR(
        BytesOption("--ram-hard-cap", ram_hard_cap, &ram_hard_cap_bytes));
  }
  if (ram_hard_cap_bytes < ram_cache_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ram-hard-cap ", ram_hard_cap,
                     " is less than --ram-cache ", ram_cache));
  }
  preload_bytes = DefaultPreload(ram_cache_bytes);
  if (!preload.empty()) {
    EW_RETURN_IF_ERROR(BytesOption("--preload", preload, &preload_bytes));
  }
  if (preload_bytes > ram_cache_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--preload ", preload,
                                                   " is more than --ram-cache ",
                                                   ram_cache, " keeps"));
  }
  EW_RETURN_IF_ERROR(BytesOption("--scrub", scrub, &scrub_bytes_per_second));
  verify_reads = verify == "on";
  EW_RETURN_IF_ERROR(ResolveThreads());
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
      "Key that every request but /health must bring")
      ->check(EmptyProblem);
  app.add_flag("--insecure-listen", insecure_listen,
               "Let other machines in without a key");
  Add(app, "--allow-host", allow_hosts,
      "Without a key, a further name that requests may call this machine by "
      "(their header Host, and the Origin of web pages); may be given again")
      ->delimiter(',');
  Add(app, "--shutdown-timeout", shutdown_timeout,
      "How long a stop waits for running replies and the disk; the last 10s "
      "(of less than 20s, half) are the disk's, which gets 10s at least; ends "
      "with 0 if all is on the disk, else with 3")
      ->capture_default_str();
  Add(app, "--durable-wait", durable_wait,
      "How long the end of a reply waits at most, when the request asks for it "
      "(X-Everwarm-Wait-Durable: 1), until the conversation is durable")
      ->capture_default_str();
}

absl::Status ServeOptions::Resolve() {
  // An empty variable counts as none for the other options.
  if (const char* key = std::getenv("EVERWARM_API_KEY");  // NOLINT
      key != nullptr && *key == '\0' && api_key.empty()) {
    return absl::InvalidArgumentError(
        "EVERWARM_API_KEY is empty; unset it to serve without a key");
  }
  EW_RETURN_IF_ERROR(model.Resolve());
  EW_RETURN_IF_ERROR(DurationOption("--shutdown-timeout", shutdown_timeout,
                                    &shutdown_timeout_ms));
  return DurationOption("--durable-wait", durable_wait, &durable_wait_ms);
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
  AddCacheDir(app, cache_dir);
  app.add_flag("--json", json, "Print JSON");
}

void CacheVerifyOptions::Register(CLI::App& app) {
  AddCacheDir(app, cache_dir);
}

void CacheGcOptions::Register(CLI::App& app) {
  AddCacheDir(app, cache_dir);
  app.add_option("--keep", keep,
                 "Also remove the blocks of every model but this one, by the "
                 "first digits that 'cache ls' shows; may be given again");
}

void CacheRmOptions::Register(CLI::App& app) {
  AddCacheDir(app, cache_dir);
  app.add_flag("--all", all, "Remove everything");
  app.add_option("--older-than", older_than,
                 "Remove what was not used for so long: 12h, 30d");
  app.add_option("--session", session,
                 "Remove what only this session came to, by the id that its "
                 "requests bring; what others share with it stays");
}

void DoctorOptions::Register(CLI::App& app) { AddCacheDir(app, cache_dir); }

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
