#include "models/model.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "models/architecture.h"
#include "models/ggml_model.h"
#include "models/gguf_file.h"
#include "models/weights.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kMinBlockTokens = 16;
constexpr uint32_t kMaxBlockTokens = 256;

absl::Status CheckOptions(const LoadOptions& options) {
  const uint32_t tokens = options.block_tokens;
  if (tokens < kMinBlockTokens || tokens > kMaxBlockTokens ||
      (tokens & (tokens - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks of ", tokens, " tokens; a power of two from ",
                     kMinBlockTokens, " to ", kMaxBlockTokens, " is needed"));
  }
  if (options.num_threads < 1 || options.num_threads > GGML_MAX_N_THREADS) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.num_threads, " threads; 1 to ", GGML_MAX_N_THREADS,
                     " are possible"));
  }
  if (!options.cpus.empty() && options.cpus.size() < options.num_threads) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.num_threads, " threads for ", options.cpus.size(), " CPUs"));
  }
  for (const uint32_t cpu : options.cpus) {
    if (cpu >= GGML_MAX_N_THREADS) {
      return absl::InvalidArgumentError(
          absl::StrCat("CPU ", cpu, " cannot be chosen; the last is ",
                       GGML_MAX_N_THREADS - 1));
    }
  }
  return absl::OkStatus();
}

struct NamedArchitecture {
  const char* name;  // general.architecture
  MakeArchitecture* make;
};

constexpr NamedArchitecture kArchitectures[] = {
    {"deepseek2", MakeDeepSeek2}, {"gemma3", MakeGemma3},
    {"gpt-oss", MakeGptOss},      {"granitehybrid", MakeGraniteHybrid},
    {"lfm2", MakeLfm2},           {"llama", MakeLlama},
    {"phi3", MakePhi3},           {"qwen2", MakeQwen2},
    {"qwen3", MakeQwen3},         {"qwen35", MakeQwen35},
    {"qwen3moe", MakeQwen3Moe},   {"smollm3", MakeSmolLm3},
};

absl::StatusOr<MakeArchitecture*> FindArchitecture(const GgufFile& file) {
  EW_ASSIGN_OR_RETURN(const std::string name,
                      file.String("general.architecture"));
  std::vector<absl::string_view> known;
  for (const NamedArchitecture& architecture : kArchitectures) {
    if (name == architecture.name) {
      return architecture.make;
    }
    known.push_back(architecture.name);
  }
  return absl::UnimplementedError(
      absl::StrCat(file.path(), ": architecture '", name,
                   "' does not run here; ", absl::StrJoin(known, ", "), " do"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const std::string& path,
                                                   const LoadOptions& options) {
  EW_RETURN_IF_ERROR(CheckOptions(options));
  EW_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto weights = std::make_unique<Weights>(std::move(file));
  EW_ASSIGN_OR_RETURN(MakeArchitecture* const make,
                      FindArchitecture(weights->file()));
  EW_ASSIGN_OR_RETURN(std::unique_ptr<Architecture> architecture,
                      make(*weights, options));
  EW_RETURN_IF_ERROR(weights->Load(options.progress));
  return GgmlModel::Make(std::move(weights), std::move(architecture), options);
}

}  // namespace everwarm::models
