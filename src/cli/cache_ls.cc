#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/units.h"
#include "cli/commands.h"
#include "store/inspect.h"
#include "store/posix_env.h"

namespace everwarm::cli {
namespace {

// Digits of an id that are shown; enough to tell those of one directory apart.
constexpr size_t kShownDigits = 12;

std::string TimeText(Clock::Wall time) {
  const std::time_t seconds = Clock::Wall::clock::to_time_t(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return text;
}

std::string GroupsText(const store::StoredFingerprint& model) {
  std::string text;
  for (const store::StoredGroup& group : model.groups) {
    const store::GroupScheme& scheme = group.scheme;
    if (scheme.codec.empty()) {
      continue;
    }
    text += (text.empty() ? "" : " + ") +
            std::to_string(scheme.geometry.num_layers()) + " layers " +
            scheme.codec;
    if (group.first_codec != scheme.codec) {
      text += " behind " + group.first_codec;
    }
  }
  return text;
}

void PrintSessions(const store::StoredFingerprint& model) {
  if (model.sessions.empty()) {
    return;
  }
  std::printf("  %-14s %9s %14s  %s\n", "session", "tokens", "conversations",
              "last used");
  for (const store::StoredSession& session : model.sessions) {
    std::printf(
        "  %-14s %9u %14llu  %s%s\n",
        session.id.hex().substr(0, kShownDigits).c_str(), session.tokens,
        static_cast<unsigned long long>(session.conversations),
        TimeText(session.last_used).c_str(), session.closed ? "  closed" : "");
  }
}

void PrintText(const store::DirectoryReport& report, const std::string& dir) {
  std::printf("%s: %s in %zu models\n", dir.c_str(),
              FormatBytes(report.total_bytes).c_str(),
              report.fingerprints.size());
  for (const store::StoredFingerprint& model : report.fingerprints) {
    std::printf("\nmodel %s  %s, %llu blocks, %llu tokens, %s\n",
                model.fingerprint.hex().substr(0, kShownDigits).c_str(),
                GroupsText(model).c_str(),
                static_cast<unsigned long long>(model.entries - model.states),
                static_cast<unsigned long long>(model.tokens),
                FormatBytes(model.bytes).c_str());
    if (model.states > 0) {
      std::printf("  and %llu states, %s of these\n",
                  static_cast<unsigned long long>(model.states),
                  FormatBytes(model.state_bytes).c_str());
    }
    if (model.damaged > 0) {
      std::printf("  %llu damaged files\n",
                  static_cast<unsigned long long>(model.damaged));
    }
    if (!model.conversations.empty()) {
      std::printf("  %-14s %9s %9s %8s %8s %12s  %s\n", "conversation",
                  "tokens", "in reach", "blocks", "states", "bytes",
                  "last used");
    }
    for (const store::StoredConversation& c : model.conversations) {
      std::printf("  %-14s %9u %9u %8llu %8llu %12s  %s\n",
                  c.leaf.hex().substr(0, kShownDigits).c_str(), c.tokens,
                  c.reachable_tokens, static_cast<unsigned long long>(c.blocks),
                  static_cast<unsigned long long>(c.states),
                  FormatBytes(c.bytes).c_str(), TimeText(c.last_used).c_str());
    }
    PrintSessions(model);
  }
  if (report.set_aside_files > 0) {
    std::printf("\n%llu damaged files were set aside: %s\n",
                static_cast<unsigned long long>(report.set_aside_files),
                FormatBytes(report.set_aside_bytes).c_str());
  }
}

int64_t UnixSeconds(Clock::Wall time) {
  return std::chrono::duration_cast<std::chrono::seconds>(
             time.time_since_epoch())
      .count();
}

void PrintJson(const store::DirectoryReport& report) {
  nlohmann::json models = nlohmann::json::array();
  for (const store::StoredFingerprint& model : report.fingerprints) {
    nlohmann::json conversations = nlohmann::json::array();
    for (const store::StoredConversation& c : model.conversations) {
      conversations.push_back({{"leaf", c.leaf.hex()},
                               {"tokens", c.tokens},
                               {"reachable_tokens", c.reachable_tokens},
                               {"blocks", c.blocks},
                               {"states", c.states},
                               {"bytes", c.bytes},
                               {"last_used", UnixSeconds(c.last_used)}});
    }
    nlohmann::json sessions = nlohmann::json::array();
    for (const store::StoredSession& session : model.sessions) {
      sessions.push_back({{"id_hash", session.id.hex()},
                          {"tokens", session.tokens},
                          {"conversations", session.conversations},
                          {"closed", session.closed},
                          {"last_used", UnixSeconds(session.last_used)}});
    }
    models.push_back({{"fingerprint", model.fingerprint.hex()},
                      {"blocks", model.entries - model.states},
                      {"states", model.states},
                      {"bytes", model.bytes},
                      {"state_bytes", model.state_bytes},
                      {"tokens", model.tokens},
                      {"damaged", model.damaged},
                      {"conversations", conversations},
                      {"sessions", sessions}});
  }
  const nlohmann::json all = {{"models", models},
                              {"set_aside_files", report.set_aside_files},
                              {"set_aside_bytes", report.set_aside_bytes},
                              {"temp_files", report.temp_files},
                              {"temp_bytes", report.temp_bytes},
                              {"total_bytes", report.total_bytes}};
  std::printf("%s\n", all.dump(2).c_str());
}

}  // namespace

int CacheLs(CacheOptions options) {
  if (options.cache_dir.empty()) {
    absl::StatusOr<std::string> dir = DefaultCacheDir();
    if (!dir.ok()) {
      return Fail(dir.status());
    }
    options.cache_dir = *dir;
  }
  store::PosixEnv env;
  const absl::StatusOr<store::DirectoryReport> report =
      store::InspectDirectory(env, options.cache_dir);
  if (!report.ok()) {
    return Fail(report.status());
  }
  if (options.json) {
    PrintJson(*report);
  } else {
    PrintText(*report, options.cache_dir);
  }
  int code = kExitOk;
  for (const absl::Status& why : report->refused) {
    code = Fail(why);
  }
  return code;
}

}  // namespace everwarm::cli
