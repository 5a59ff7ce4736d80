// All parts of one model's server put together: the one place that sees them
// all.
#ifndef EVERWARM_CLI_ASSEMBLY_H_
#define EVERWARM_CLI_ASSEMBLY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/log.h"
#include "cache/block_pool.h"
#include "cache/kv_cache.h"
#include "cache/tier.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "engine/token_history.h"
#include "engine/token_text.h"
#include "models/chat_template.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "server/model_text_front.h"
#include "store/block_store.h"
#include "store/posix_env.h"

namespace everwarm::cli {

// Threads: Build() and the destructor on one; the engine and the text front are
// for any.
class Assembly {
 public:
  // Loads the model, opens the directory and starts the engine.
  // Errors: those of the parts; the message is meant for a person.
  static absl::StatusOr<std::unique_ptr<Assembly>> Build(
      const ModelOptions& options, const Clock* clock, Logger logger);

  engine::Engine& engine() { return *engine_; }
  const server::ModelTextFront& text_front() const { return *text_front_; }

  // What is done at its own pace; to be called about twice a second.
  void Tick();

 private:
  Assembly() = default;
  absl::Status LoadModel(const ModelOptions& options, const Clock* clock);
  // What a start-up scan found.
  struct Found {
    std::vector<cache::TierEntry> entries;
    std::vector<cache::SessionEntry> sessions;
  };
  absl::StatusOr<Found> OpenTier(const ModelOptions& options,
                                 const Fingerprint& fingerprint,
                                 const Clock* clock, const Logger& logger);
  // One line about the codecs, and a warning where they are not everywhere.
  void DescribeKv(const ModelOptions& options, const Logger& logger) const;
  absl::StatusOr<Fingerprint> Identify(const ModelOptions& options,
                                       const Clock* clock,
                                       const Logger& logger);
  // Of what the cache's blocks are.
  struct Identity {
    Fingerprint fingerprint;
    cache::CacheLayout layout;
  };
  absl::Status StartEngine(const ModelOptions& options, Identity identity,
                           Found found, const Clock* clock,
                           const Logger& logger);

  // Each outlives those below it.
  std::unique_ptr<models::Vocabulary> vocabulary_;
  std::unique_ptr<models::ChatTemplate> chat_template_;
  std::unique_ptr<engine::TokenHistory> history_;
  std::unique_ptr<server::ModelTextFront> text_front_;
  std::unique_ptr<engine::TokenText> token_text_;
  std::unique_ptr<models::Model> model_;
  store::PosixEnv env_;
  std::unique_ptr<cache::BlockPool> pool_;
  std::unique_ptr<Executor> writers_;
  std::unique_ptr<Executor> readers_;
  std::unique_ptr<Executor> scrubbers_;
  std::unique_ptr<cache::Tier> tier_;
  // The tier, when it is one over files.
  store::BlockStore* store_ = nullptr;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_ASSEMBLY_H_
