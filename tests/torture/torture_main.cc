// `make torture` calls this, and tools/torture.py adds real processes: random
// histories and enumerated crashes for as long as one likes.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "spdlog/sinks/stdout_sinks.h"
#include "tests/torture/crashes.h"
#include "tests/torture/history.h"

namespace everwarm::torture {
namespace {

using Time = std::chrono::steady_clock;

struct Settings {
  uint64_t first = 1;
  uint64_t histories = std::numeric_limits<uint64_t>::max();
  uint64_t seconds = 60;
  uint64_t crash_seeds = 5;
  // Plays one history and tells every step.
  uint64_t replay = 0;
};

class Run {
 public:
  explicit Run(const Settings& settings)
      : settings_(settings),
        end_(Time::now() + std::chrono::seconds(settings.seconds)) {}

  // The number of problems.
  size_t All() {
    if (settings_.replay > 0) {
      auto logger = spdlog::stderr_logger_st("history");
      logger->set_level(spdlog::level::debug);
      logger->set_pattern("%v");
      Report(RunHistory(settings_.replay, &counts_, logger));
    } else {
      EnumerateCrashes();
      PlayHistories();
    }
    return problems_;
  }
  const Counts& counts() const { return counts_; }

 private:
  void Report(const std::vector<std::string>& problems) {
    for (const std::string& problem : problems) {
      std::printf("PROBLEM %s\n", problem.c_str());
    }
    problems_ += problems.size();
  }
  void Progress(const std::string& what) {
    std::fprintf(stderr, "%s; %llu crashes, %zu problems\n", what.c_str(),
                 static_cast<unsigned long long>(counts_.crashes.all()),
                 problems_);
  }

  // As many scenes as half of the time is enough for: the rest is the
  // histories'.
  void EnumerateCrashes() {
    const Time::time_point half =
        end_ - std::chrono::seconds(settings_.seconds) / 2;
    for (const Scene& scene : AllScenes()) {
      if (settings_.crash_seeds == 0 || Time::now() >= half) {
        return;
      }
      Report(StopAtEachCall(scene, settings_.crash_seeds, &counts_));
      Progress("stopped at each call: " + scene.name);
    }
  }

  void PlayHistories() {
    constexpr std::chrono::seconds kBetweenLines(5);
    Time::time_point next_line = Time::now() + kBetweenLines;
    for (uint64_t i = 0; i < settings_.histories && Time::now() < end_; ++i) {
      Report(RunHistory(settings_.first + i, &counts_));
      if (Time::now() >= next_line) {
        next_line += kBetweenLines;
        Progress(std::to_string(counts_.histories) + " histories");
      }
    }
  }

  const Settings settings_;
  const Time::time_point end_;
  Counts counts_;
  size_t problems_ = 0;
};

// One name and number a line, for people and programs; indented: of the one
// above.
void Print(const Counts& counts, size_t problems) {
  const CrashCounts& crashes = counts.crashes;
  const FaultCounts& faults = counts.faults;
  const DamageCounts& damages = counts.damages;
  const std::pair<const char*, uint64_t> lines[] = {
      {"histories", counts.histories},
      {"crashes at enumerated calls", counts.enumerated_crashes},
      {"crashes in all", crashes.all()},
      {"  unsynced bytes kept", crashes.kept},
      {"  dropped", crashes.dropped},
      {"  torn", crashes.torn},
      {"  reordered", crashes.reordered},
      {"orderly ends", counts.orderly_ends},
      {"restarts", counts.restarts},
      {"second processes", counts.second_processes},
      {"faults that a disk began to have", faults.all()},
      {"  errors of reads", faults.read_error},
      {"  short reads", faults.short_read},
      {"  flipped bits in reads", faults.flipped_read},
      {"  errors of writes", faults.write_error},
      {"  no space now and then", faults.no_space},
      {"  little space", faults.little_space},
      {"  errors of syncs", faults.sync_error},
      {"  errors of names", faults.name_error},
      {"damaged files", damages.all()},
      {"  cut", damages.cut},
      {"  with a flipped bit", damages.flipped},
      {"  swapped", damages.swapped},
      {"  removed", damages.removed},
      {"  zeroed to the end", damages.zeroed},
      {"  replaced by no file", damages.replaced},
      {"evicted blocks", counts.evictions},
      {"scrubbed blocks", counts.scrubbed},
      {"  found damaged", counts.scrub_finds},
      {"flushes", counts.flushes},
      {"blocks compared after a restart", counts.blocks_read},
      {"tokens compared in use", counts.tokens_compared},
      {"acknowledged tokens", counts.acknowledged_tokens},
      {"wrong bytes served", counts.wrong_bytes},
      {"acknowledged tokens lost", counts.lost_tokens},
      {"problems", problems},
  };
  for (const auto& [name, number] : lines) {
    std::printf("%-32s %14llu\n", name,
                static_cast<unsigned long long>(number));
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Random histories and enumerated crashes on a simulated disk");
  app.add_option("--first", settings.first, "Number of the first history");
  app.add_option("--histories", settings.histories, "How many at most");
  app.add_option("--seconds", settings.seconds, "How long at most");
  app.add_option("--crash-seeds", settings.crash_seeds,
                 "Torn and reordered disks for each call; 0: none at all");
  app.add_option("--replay", settings.replay,
                 "Plays this history alone and tells every step");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  Run run(settings);
  const size_t problems = run.All();
  Print(run.counts(), problems);
  return problems == 0 ? 0 : 1;
}

}  // namespace
}  // namespace everwarm::torture

int main(int argc, char** argv) { return everwarm::torture::Main(argc, argv); }
