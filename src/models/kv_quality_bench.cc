// What a KV codec does to a model's predictions: mean KL of its logits from
// those with f16 KV, over positions of real text; libllama's quantised KV the
// same way beside it. JSON lines on stdout.
//
// Products with quantised weights turn the smallest difference into noise (see
// docs/decisions/0001); --f32-weights compares without it. Names of codecs
// behind it are measured instead of the usual ones and libllama's.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "llama.h"
#include "models/model.h"
#include "models/quiet_log.h"
#include "models/vocabulary.h"
#include "testing/f32_gguf.h"
#include "testing/logit_distance.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kThreads = 2;
constexpr uint32_t kPositions = 2048;
constexpr uint32_t kChunk = 256;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Gives the logits of the next kChunk tokens, [kChunk, vocabulary].
using NextLogits = std::function<absl::Span<const float>(
    absl::Span<const TokenId> tokens, uint32_t start)>;

NextLogits Ours(const std::string& path, const std::string& kv) {
  const auto scheme = KvScheme::Parse(kv);
  if (!scheme.ok()) Fail(scheme.status().ToString());
  auto loaded = Model::Load(path, {.num_threads = kThreads, .kv = *scheme});
  if (!loaded.ok()) Fail(loaded.status().ToString());
  const std::shared_ptr<Model> model = *std::move(loaded);
  const auto blocks = std::make_shared<SequenceBlocks>(*model, kPositions);
  return [model, blocks](absl::Span<const TokenId> tokens, uint32_t start) {
    const auto step = StepOnce(*model, *blocks, tokens, start, Wanted::kAll);
    if (!step.ok()) Fail(step.status().ToString());
    return *step;
  };
}

NextLogits Llama(const std::string& path, ggml_type kv) {
  const std::shared_ptr<llama_model> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()),
      llama_model_free);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kPositions;
  params.n_batch = kChunk;
  params.n_ubatch = kChunk;
  params.n_threads = kThreads;
  params.n_threads_batch = kThreads;
  params.type_k = kv;
  params.type_v = kv;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  const std::shared_ptr<llama_context> context(
      llama_init_from_model(model.get(), params), llama_free);
  if (context == nullptr) Fail(path + ": libllama does not load it");
  const auto width = static_cast<size_t>(
      llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
  return [model, context, width](absl::Span<const TokenId> tokens,
                                 uint32_t start) {
    llama_batch batch =
        llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    batch.n_tokens = static_cast<int32_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch.token[i] = tokens[i];
      batch.pos[i] = static_cast<llama_pos>(start + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context.get(), batch) != 0) Fail("llama_decode failed");
    llama_batch_free(batch);
    return absl::MakeConstSpan(llama_get_logits(context.get()),
                               tokens.size() * width);
  };
}

struct Agreement {
  double kl = 0.0;    // summed over positions, nats
  double top1 = 0.0;  // positions
};

void Compare(absl::Span<const float> expected, absl::Span<const float> got,
             size_t width, Agreement& sums) {
  for (size_t at = 0; at < expected.size(); at += width) {
    const auto p = expected.subspan(at, width);
    const auto q = got.subspan(at, width);
    sums.kl += LogitKl(p, q);
    sums.top1 += TopToken(p) == TopToken(q) ? 1.0 : 0.0;
  }
}

// `baseline` and `other` are asked chunk by chunk, so that both logits exist.
Agreement Measure(const std::vector<TokenId>& tokens, size_t width,
                  const NextLogits& baseline, const NextLogits& other) {
  Agreement sums;
  for (uint32_t start = 0; start < kPositions; start += kChunk) {
    const auto chunk = absl::MakeConstSpan(tokens).subspan(start, kChunk);
    const auto expected = baseline(chunk, start);
    Compare(expected, other(chunk, start), width, sums);
  }
  return {sums.kl / kPositions, sums.top1 / kPositions};
}

std::vector<TokenId> Text(const std::string& path,
                          const std::string& text_path) {
  const auto vocabulary = Vocabulary::Load(path);
  if (!vocabulary.ok()) Fail(vocabulary.status().ToString());
  std::ifstream file(text_path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  auto tokens = (*vocabulary)->Tokenize(text, {});
  if (!tokens.ok()) Fail(tokens.status().ToString());
  if (tokens->size() < kPositions) {
    Fail(absl::StrCat(text_path, ": ", tokens->size(), " tokens, fewer than ",
                      kPositions));
  }
  tokens->resize(kPositions);
  return *std::move(tokens);
}

void Run(const std::string& model_path, const std::string& text_path,
         bool f32_weights, std::vector<std::string> codecs) {
  SilenceLibraries();
  const std::vector<TokenId> tokens = Text(model_path, text_path);
  const TempDir dir;
  std::string path = model_path;
  if (f32_weights) {
    path = dir.File("f32.gguf");
    const absl::Status written = WriteF32Gguf(model_path, path);
    if (!written.ok()) Fail(written.ToString());
  }
  const auto info = Model::Load(path, {});
  if (!info.ok()) Fail(info.status().ToString());
  const size_t width = (*info)->info().vocab_size;
  const auto print = [&](const char* side, const std::string& kv,
                         const Agreement& agreement) {
    std::printf(
        "{\"model\": \"%s\", \"weights\": \"%s\", \"side\": \"%s\", \"kv\": "
        "\"%s\", \"positions\": %u, \"mean_kl\": %.3e, \"top1\": %.4f}\n",
        model_path.c_str(), f32_weights ? "f32" : "as they are", side,
        kv.c_str(), kPositions, agreement.kl, agreement.top1);
    std::fflush(stdout);
  };
  const bool with_peer = codecs.empty();
  if (with_peer) {
    codecs = {"q8", "turbo:k8v3", "q4", "turbo:k8v3+f16:64"};
  }
  for (const std::string& kv : codecs) {
    print("everwarm", kv,
          Measure(tokens, width, Ours(path, "f16"), Ours(path, kv)));
  }
  if (!with_peer) return;
  const std::pair<const char*, ggml_type> kPeer[] = {{"q8_0", GGML_TYPE_Q8_0},
                                                     {"q4_0", GGML_TYPE_Q4_0}};
  for (const auto& [name, type] : kPeer) {
    print(
        "libllama", name,
        Measure(tokens, width, Llama(path, GGML_TYPE_F16), Llama(path, type)));
  }
}

}  // namespace
}  // namespace everwarm::models

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf TEXT [--f32-weights] [KV ...]\n",
                 argv[0]);
    return 2;
  }
  std::vector<std::string> codecs(arguments.begin() + 2, arguments.end());
  const bool f32 = !codecs.empty() && codecs[0] == "--f32-weights";
  if (f32) codecs.erase(codecs.begin());
  everwarm::models::Run(arguments[0], arguments[1], f32, std::move(codecs));
  return 0;
}
