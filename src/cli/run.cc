#include <cstdio>
#include <memory>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/status_macros.h"
#include "cli/assembly.h"
#include "cli/commands.h"
#include "cli/ending.h"
#include "cli/signals.h"

namespace everwarm::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFlushTimeout{30000};
// What is left of the store gets for its last calls to the disk when all is
// durable.
constexpr milliseconds kTeardown{10000};

absl::StatusOr<engine::Request> MakeRequest(const RunOptions& options,
                                            const server::TextFront& text) {
  engine::Request request;
  models::RenderedPrompt prompt{.text = options.prompt};
  if (!options.raw) {
    EW_ASSIGN_OR_RETURN(
        prompt, text.RenderChat({.messages = {{"user", options.prompt}}}));
  }
  EW_ASSIGN_OR_RETURN(
      request.prompt,
      text.Tokenize(prompt.text, {.add_special = prompt.add_special,
                                  .parse_special = !options.raw}));
  request.stops = prompt.stops;
  request.max_tokens = options.max_tokens;
  request.sampling.temperature = options.temperature;
  request.sampling.seed = options.seed;
  return request;
}

// Prints the reply as it comes; an interrupt ends it early.
absl::Status PrintReply(engine::Reply& reply, const Logger& logger) {
  for (;;) {
    if (WaitForStopSignal(milliseconds(0)).has_value()) {
      reply.Cancel();
    }
    const std::optional<engine::ReplyEvent> event =
        reply.Next(milliseconds(200));
    if (!event.has_value()) {
      continue;
    }
    if (const auto* text = std::get_if<engine::TextEvent>(&*event)) {
      std::fputs(text->text.c_str(), stdout);
      std::fflush(stdout);
    } else if (const auto* end = std::get_if<engine::FinishedEvent>(&*event)) {
      std::fputc('\n', stdout);
      const engine::Usage& usage = end->usage;
      const double decode = std::chrono::duration<double>(usage.decode).count();
      logger->info(
          "{} prompt tokens, {} of them cached; {} tokens at {:.1f} a second",
          usage.prompt_tokens, usage.reuse.cached, usage.completion_tokens,
          decode > 0 ? (usage.completion_tokens - 1) / decode : 0.0);
      return absl::OkStatus();
    } else {
      return std::get<engine::FailedEvent>(*event).status;
    }
  }
}

}  // namespace

int RunPrompt(RunOptions options) {
  if (absl::Status status = options.Resolve(); !status.ok()) {
    return Fail(status);
  }
  const Logger logger = MakeLogger(options.model.log_level);
  const SystemClock clock;
  absl::StatusOr<std::unique_ptr<Assembly>> assembly =
      Assembly::Build(options.model, &clock, logger);
  if (!assembly.ok()) {
    return Fail(assembly.status());
  }
  absl::StatusOr<engine::Request> request =
      MakeRequest(options, (*assembly)->text_front());
  if (!request.ok()) {
    return Fail(request.status());
  }
  engine::Engine& engine = (*assembly)->engine();
  absl::StatusOr<std::unique_ptr<engine::Reply>> reply =
      engine.Submit(*std::move(request));
  if (!reply.ok()) {
    return Fail(reply.status());
  }
  if (absl::Status status = PrintReply(**reply, logger); !status.ok()) {
    return Fail(status);
  }
  const engine::FlushOutcome outcome = engine.Stop(kFlushTimeout);
  const int code = ExitCodeOf(outcome, *logger);
  if (outcome.timed_out) {
    // What is pending would be waited for below.
    EndNow(code, *logger);
  }
  const EndInTime last_resort(code, kTeardown, logger);
  reply->reset();
  assembly->reset();
  return code;
}

}  // namespace everwarm::cli
