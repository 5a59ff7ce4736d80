#include "cli/assembly.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/by_span.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "cache/latest_conversations.h"
#include "cli/numerics.h"
#include "cli/progress.h"
#include "engine/cache_layout.h"
#include "engine/local_engine.h"
#include "models/kv_sizes.h"
#include "store/block_store.h"
#include "store/directory_layout.h"
#include "store/fingerprint.h"

namespace everwarm::cli {
namespace {

// Tasks of the store that read at the same time.
constexpr size_t kReaderThreads = 2;
// Of those on disk, whose text is known to be theirs from the start.
constexpr size_t kRememberedConversations = 32;

// What states are in, on disk: f32 as it is in memory.
constexpr char kStateCodec[] = "state";

// Blocks in the writer's hands cannot be given up, so these must leave most of
// what is between target and hard cap to the rest.
uint64_t WriteQueueBytes(const ModelOptions& options) {
  constexpr uint64_t kLeast = 16 * kMiB;
  constexpr uint64_t kMost = 256 * kMiB;
  const uint64_t room = options.ram_hard_cap_bytes - options.ram_cache_bytes;
  return std::clamp(room / 2, kLeast, kMost);
}

// What is made here is for its owner alone; a directory that was there before
// may not be.
void WarnIfOpenToOthers(const std::string& dir, const Logger& logger) {
  struct stat info;
  if (::stat(dir.c_str(), &info) == 0 &&
      (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    logger->warn(
        "others may look into the cache directory {} (its mode is {:o}); its "
        "files are for their owner alone",
        dir, info.st_mode & 0777);
  }
}

models::FileStamp StampOf(const store::FileInfo& info) {
  return {info.device, info.inode, info.size, info.modified.time_since_epoch(),
          info.changed.time_since_epoch()};
}

absl::Status ChangedWhileLoading(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(
      path,
      " changed while it was being loaded; start again when it is whole"));
}

std::vector<BySpan<store::GroupScheme>> Schemes(const models::Model& model) {
  std::vector<BySpan<store::GroupScheme>> schemes;
  for (const models::ModelGroup& group : model.groups()) {
    const BySpan<models::LayerScheme>& scheme = group.scheme;
    const BySpan<BlockGeometry>& geometry = group.geometry;
    schemes.push_back(
        {geometry.first_spans,
         {scheme.first.name, geometry.first},
         {group.recurrent ? kStateCodec : scheme.rest.name, geometry.rest}});
  }
  return schemes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> Assembly::Build(
    const ModelOptions& options, const Clock* clock, Logger logger) {
  auto assembly = std::unique_ptr<Assembly>(new Assembly);
  EW_RETURN_IF_ERROR(assembly->LoadModel(options, clock));
  const models::ModelInfo& info = assembly->model_->info();
  logger->info("{}: {} {}, {} of weights, trained for {} tokens", options.model,
               info.architecture, info.name, FormatBytes(info.weight_bytes),
               info.train_context);
  if (options.context > info.train_context && info.train_context > 0) {
    logger->warn(
        "a context of {} tokens is more than the {} the model was "
        "trained for",
        options.context, info.train_context);
  }
  EW_ASSIGN_OR_RETURN(cache::CacheLayout layout,
                      engine::CacheLayoutOf(*assembly->model_));
  assembly->DescribeKv(options, logger);
  Fingerprint fingerprint;
  if (options.cache_dir != "off") {
    EW_ASSIGN_OR_RETURN(fingerprint,
                        assembly->Identify(options, clock, logger));
  }
  EW_ASSIGN_OR_RETURN(Found found,
                      assembly->OpenTier(options, fingerprint, clock, logger));
  EW_RETURN_IF_ERROR(assembly->StartEngine(options,
                                           {fingerprint, std::move(layout)},
                                           std::move(found), clock, logger));
  return assembly;
}

void Assembly::Tick() {
  if (store_ != nullptr) {
    store_->Tick();
  }
}

absl::Status Assembly::LoadModel(const ModelOptions& options,
                                 const Clock* clock) {
  const std::optional<models::FileStamp> stamp = models::StampOf(options.model);
  EW_ASSIGN_OR_RETURN(vocabulary_, models::Vocabulary::Load(options.model));
  EW_ASSIGN_OR_RETURN(chat_template_, models::ChatTemplate::Load(*vocabulary_));
  token_text_ =
      std::make_unique<engine::VocabularyTokenText>(vocabulary_.get());
  Progress progress("loading the model", clock);
  models::LoadOptions load;
  load.block_tokens = options.block_tokens;
  load.num_threads = options.threads;
  load.cpus = options.cpu_list;
  load.context = options.context;
  load.kv = options.kv_scheme;
  load.progress = [&progress](float fraction) { progress.Update(fraction); };
  EW_ASSIGN_OR_RETURN(model_, models::Model::Load(options.model, load));
  // The vocabulary was read by other calls than the weights.
  if (stamp != model_->info().stamp ||
      stamp != models::StampOf(options.model)) {
    return ChangedWhileLoading(options.model);
  }
  return absl::OkStatus();
}

void Assembly::DescribeKv(const ModelOptions& options,
                          const Logger& logger) const {
  const models::KvSizes sizes = models::KvSizesOf(model_->groups());
  const bool windows = std::any_of(
      model_->groups().begin(), model_->groups().end(),
      [](const models::ModelGroup& group) { return group.window != 0; });
  logger->info("keys and values: {}, {} bytes a token", options.kv,
               sizes.bytes_per_token);
  if (sizes.first_tokens > 0) {
    logger->info("the first {} tokens have {}: {} bytes each",
                 sizes.first_tokens, options.kv_scheme.first().scheme.name,
                 sizes.bytes_per_first_token);
  }
  if (sizes.state_bytes > 0) {
    logger->info("recurrent layers: {} bytes a state, one every {} tokens",
                 sizes.state_bytes, options.state_every);
  }
  if (windows && options.kv_scheme.SparesWindows()) {
    logger->info("layers with a window keep f16; {} is for the others",
                 options.kv);
  } else if (windows && sizes.first_tokens > 0) {
    logger->info(
        "layers with a window keep their first tokens like all others");
  }
}

absl::StatusOr<Fingerprint> Assembly::Identify(const ModelOptions& options,
                                               const Clock* clock,
                                               const Logger& logger) {
  Progress progress("hashing the weights", clock);
  store::WeightsHasher hasher(
      &env_, absl::StrCat(options.cache_dir, "/", store::kWeightsMemoName),
      logger);
  store::FingerprintParts parts;
  EW_ASSIGN_OR_RETURN(
      const store::HashedWeights hashed,
      hasher.Hash(options.model, [&progress](uint64_t done, uint64_t total) {
        progress.Update(static_cast<float>(done) / static_cast<float>(total));
      }));
  // Else blocks of one file's weights would be kept under the other's name.
  if (StampOf(hashed.file) != model_->info().stamp) {
    return ChangedWhileLoading(options.model);
  }
  parts.weights = hashed.digest;
  parts.groups = Schemes(*model_);
  parts.numerics_version = NumericsVersion(model_->info().variant);
  return store::ComputeFingerprint(parts);
}

absl::StatusOr<Assembly::Found> Assembly::OpenTier(
    const ModelOptions& options, const Fingerprint& fingerprint,
    const Clock* clock, const Logger& logger) {
  std::vector<BySpan<BlockGeometry>> geometries;
  for (const models::ModelGroup& group : model_->groups()) {
    geometries.push_back(group.geometry);
  }
  pool_ = std::make_unique<cache::BlockPool>(std::move(geometries));
  if (options.cache_dir == "off") {
    tier_ = std::make_unique<cache::NullTier>();
    logger->info("no cache directory: blocks live in RAM only");
    return Found();
  }
  writers_ = std::make_unique<ThreadExecutor>("writer", 1);
  readers_ = std::make_unique<ThreadExecutor>("reader", kReaderThreads);
  scrubbers_ = std::make_unique<ThreadExecutor>("scrubber", 1);
  store::StoreOptions store_options;
  store_options.dir = options.cache_dir;
  store_options.fingerprint = fingerprint;
  store_options.groups = Schemes(*model_);
  store_options.max_bytes = options.ssd_cache_bytes;
  store_options.min_free_bytes = options.ssd_min_free_bytes;
  store_options.max_queued_bytes = WriteQueueBytes(options);
  store_options.verify_payload = options.verify_reads;
  store_options.reader_tasks = kReaderThreads;
  store_options.scrub_bytes_per_second = options.scrub_bytes_per_second;
  WarnIfOpenToOthers(options.cache_dir, logger);
  EW_ASSIGN_OR_RETURN(
      store::OpenedStore opened,
      store::BlockStore::Open(std::move(store_options),
                              {&env_, clock, writers_.get(), readers_.get(),
                               logger, scrubbers_.get()}));
  store_ = opened.store.get();
  tier_ = std::move(opened.store);
  return Found{std::move(opened.entries), std::move(opened.sessions)};
}

absl::Status Assembly::StartEngine(const ModelOptions& options,
                                   Identity identity, Found found,
                                   const Clock* clock, const Logger& logger) {
  cache::KvCache::Config config;
  config.fingerprint = identity.fingerprint;
  config.layout = std::move(identity.layout);
  config.ram_target_bytes = options.ram_cache_bytes;
  config.ram_hard_cap_bytes = options.ram_hard_cap_bytes;
  config.demote_idle = options.demote_idle_ms;
  EW_RETURN_IF_ERROR(config.Validate());
  cache_ = std::make_unique<cache::KvCache>(std::move(config), pool_.get(),
                                            tier_.get(), clock, logger);
  history_ = std::make_unique<engine::TokenHistory>(
      identity.fingerprint,
      [vocabulary = vocabulary_.get()](TokenId token) {
        return vocabulary->PieceWithControl(token);
      },
      engine::TokenHistory::Limits{});
  std::vector<cache::Conversation> conversations =
      cache::LatestConversations(found.entries, kRememberedConversations);
  for (const cache::Conversation& conversation : conversations) {
    history_->Remember(conversation.root, conversation.tokens);
  }
  text_front_ = std::make_unique<server::ModelTextFront>(
      vocabulary_.get(), chat_template_.get(), options.context, history_.get());
  cache_->Adopt(std::move(found.entries));
  if (store_ != nullptr) {
    cache_->KeepSessions(store_, std::move(found.sessions));
  }
  engine::LocalEngine::Config engine_config;
  engine_config.context_size = options.context;
  engine_config.max_batch = options.max_batch;
  engine_config.prefill_chunk = options.prefill_chunk;
  engine_config.state_every = options.state_every;
  engine_config.max_slowdown = options.max_slowdown;
  engine_config.max_gap = options.max_gap_ms;
  engine_config.preload_bytes = options.preload_bytes;
  EW_RETURN_IF_ERROR(engine_config.Validate());
  engine_ = std::make_unique<engine::LocalEngine>(
      engine_config,
      engine::LocalEngine::Parts{model_.get(), token_text_.get(), cache_.get(),
                                 tier_.get(), clock, logger, history_.get()},
      std::move(conversations));
  return absl::OkStatus();
}

}  // namespace everwarm::cli
