// Prompt and decode speed of a model file, with the meaning of llama-bench's
// ppN, and tgN at a depth: JSON lines on stdout.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "models/model.h"
#include "testing/model_harness.h"

namespace everwarm::models {
namespace {

struct Options {
  std::string path;
  uint32_t threads = 2;
  uint32_t prompt = 512;
  uint32_t generate = 32;
  uint32_t repetitions = 3;
  uint32_t batch = 512;
  std::vector<uint32_t> depths = {0, 4000};
  KvScheme kv;
};

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since)
      .count();
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::vector<TokenId> SomeTokens(uint32_t count, uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((i * 7919 + 1000) % vocabulary));
  }
  return tokens;
}

void Prefill(Model& model, const SequenceBlocks& blocks, TokenPos start,
             uint32_t count, uint32_t batch) {
  const std::vector<TokenId> tokens =
      SomeTokens(count, model.info().vocab_size);
  for (uint32_t at = 0; at < count; at += batch) {
    const auto part = absl::MakeConstSpan(tokens).subspan(at, batch);
    const bool last = at + part.size() == count;
    const auto step = StepOnce(model, blocks, part, start + at,
                               last ? Wanted::kLast : Wanted::kNone);
    if (!step.ok()) {
      Fail(step.status());
    }
  }
}

void Decode(Model& model, const SequenceBlocks& blocks, TokenPos start,
            uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const TokenId token =
        static_cast<TokenId>((i * 31 + 100) % model.info().vocab_size);
    const auto step =
        StepOnce(model, blocks, {&token, 1}, start + i, Wanted::kLast);
    if (!step.ok()) {
      Fail(step.status());
    }
  }
}

void Print(const Options& options, const char* test, uint32_t tokens,
           uint32_t depth, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf(
      "{\"model\": \"%s\", \"test\": \"%s%u\", \"depth\": %u, "
      "\"threads\": %u, \"median_tokens_per_second\": %.2f, "
      "\"lowest\": %.2f, \"highest\": %.2f}\n",
      options.path.c_str(), test, tokens, depth, options.threads,
      rates[rates.size() / 2], rates.front(), rates.back());
  std::fflush(stdout);
}

void Run(const Options& options) {
  auto loaded = Model::Load(options.path,
                            {.num_threads = options.threads, .kv = options.kv});
  if (!loaded.ok()) {
    Fail(loaded.status());
  }
  Model& model = **loaded;
  for (const uint32_t depth : options.depths) {
    const SequenceBlocks blocks(
        model, depth + std::max(options.prompt, options.generate) + 1);
    Prefill(model, blocks, 0, std::max(depth, 1u), options.batch);
    std::vector<double> prefill;
    std::vector<double> decode;
    // The first round warms up.
    for (uint32_t round = 0; round <= options.repetitions; ++round) {
      const auto start = std::chrono::steady_clock::now();
      Prefill(model, blocks, depth, options.prompt, options.batch);
      const double prompt_seconds = Seconds(start);
      const auto middle = std::chrono::steady_clock::now();
      Decode(model, blocks, depth, options.generate);
      const double generate_seconds = Seconds(middle);
      if (round > 0) {
        prefill.push_back(options.prompt / prompt_seconds);
        decode.push_back(options.generate / generate_seconds);
      }
    }
    if (options.prompt > 0) {
      Print(options, "pp", options.prompt, depth, std::move(prefill));
    }
    if (options.generate > 0) {
      Print(options, "tg", options.generate, depth, std::move(decode));
    }
  }
}

bool ParseUint(const char* text, uint32_t& value) {
  return absl::SimpleAtoi(text, &value);
}

// False when an option is unknown or its value is not a number.
bool Parse(int argc, char** argv, Options& options) {
  if (argc < 2 || argc % 2 != 0) {
    return false;
  }
  options.path = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    uint32_t value = 0;
    if (name == "-kv") {
      auto scheme = KvScheme::Parse(argv[i + 1]);
      if (!scheme.ok()) {
        Fail(scheme.status());
      }
      options.kv = *std::move(scheme);
      continue;
    }
    if (name == "-d") {
      options.depths.clear();
      for (const auto& part : absl::StrSplit(argv[i + 1], ',')) {
        if (!absl::SimpleAtoi(part, &value)) {
          return false;
        }
        options.depths.push_back(value);
      }
      continue;
    }
    if (!ParseUint(argv[i + 1], value)) {
      return false;
    }
    if (name == "-t") {
      options.threads = value;
    } else if (name == "-p") {
      options.prompt = value;
    } else if (name == "-n") {
      options.generate = value;
    } else if (name == "-r") {
      options.repetitions = value;
    } else if (name == "-b") {
      options.batch = value;
    } else {
      return false;
    }
  }
  return options.batch > 0 && options.repetitions > 0;
}

}  // namespace
}  // namespace everwarm::models

int main(int argc, char** argv) {
  everwarm::models::Options options;
  if (!everwarm::models::Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s MODEL.gguf [-t threads] [-p prompt] [-n generate] "
                 "[-d depth,depth] [-r repetitions] [-b batch] [-kv scheme]\n",
                 argv[0]);
    return 2;
  }
  everwarm::models::Run(options);
  return 0;
}
