// The rows of one step, gathered from the running generations.
#ifndef EVERWARM_ENGINE_BATCH_H_
#define EVERWARM_ENGINE_BATCH_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "engine/generation.h"
#include "models/model.h"

namespace everwarm::engine {

// Rows of several generations; nothing is padded or merged, a row is a position
// of a block table. Keeps its memory between steps.
//
// Threads: the engine's.
class Batch {
 public:
  struct Part {
    Generation* generation = nullptr;
    std::vector<TokenId> tokens;
    bool wants_logits = false;
  };

  void Clear();
  // Requires: the sequence has room reserved for the tokens.
  void Add(Generation* generation, absl::Span<const TokenId> tokens,
           size_t num_groups);

  bool empty() const { return parts_.empty(); }
  size_t num_rows() const { return rows_.size(); }
  models::StepInput input() const { return {rows_, sequences_}; }
  // In the order of Add(), which is that of the logits.
  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
  std::vector<models::StepRow> rows_;
  std::vector<models::StepSequence> sequences_;
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_BATCH_H_
