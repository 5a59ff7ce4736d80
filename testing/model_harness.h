// Block tables for tests and benchmarks that step a model without an engine.
#ifndef EVERWARM_TESTING_MODEL_HARNESS_H_
#define EVERWARM_TESTING_MODEL_HARNESS_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "absl/types/span.h"
#include "base/block_geometry.h"
#include "base/ids.h"
#include "models/model.h"

namespace everwarm {

// The slots of one sequence, for all groups and `max_tokens` positions; states
// are those of position 0.
//
// Threads: one.
class SequenceBlocks {
 public:
  SequenceBlocks(const models::Model& model, TokenPos max_tokens) {
    for (const models::ModelGroup& group : model.groups()) {
      const uint32_t span = group.geometry.rest.block_tokens();
      const size_t slots = group.recurrent ? 1 : (max_tokens + span - 1) / span;
      // Room for either kind of block.
      const size_t bytes = std::max(group.geometry.first.slot_bytes(),
                                    group.geometry.rest.slot_bytes());
      const size_t mapped = AlignUp(slots * bytes, kHugePage);
      memory_.emplace_back(static_cast<std::byte*>(
          ::operator new (mapped, std::align_val_t{kHugePage})));
      madvise(memory_.back().get(), mapped, MADV_HUGEPAGE);
      if (group.recurrent) {
        std::memset(memory_.back().get(), 0, bytes);
      }
      bytes_.push_back(slots * bytes);
      std::vector<std::byte*>& table = tables_.emplace_back();
      for (size_t i = 0; i < slots; ++i) {
        table.push_back(memory_.back().get() + i * bytes);
      }
    }
  }

  // Makes everything, states too, as in `other`, which is of the same model and
  // size.
  void CopyFrom(const SequenceBlocks& other) {
    for (size_t g = 0; g < memory_.size(); ++g) {
      std::memcpy(memory_[g].get(), other.memory_[g].get(), bytes_[g]);
    }
  }
  // All bytes of all groups.
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> all;
    for (size_t g = 0; g < memory_.size(); ++g) {
      all.insert(all.end(), memory_[g].get(), memory_[g].get() + bytes_[g]);
    }
    return all;
  }

  models::StepSequence View() const {
    models::StepSequence sequence;
    for (const std::vector<std::byte*>& table : tables_) {
      sequence.groups.push_back(absl::MakeConstSpan(table));
    }
    return sequence;
  }

 private:
  // As in the block pool, so that a benchmark meets the same pages.
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kHugePage});
    }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<size_t> bytes_;  // of the slots
  std::vector<std::vector<std::byte*>> tables_;
};

enum class Wanted { kNone, kLast, kAll };

// One step of one sequence: `tokens` at `start` and on. Logits as Step() gives
// them.
inline absl::StatusOr<absl::Span<const float>> StepOnce(
    models::Model& model, const SequenceBlocks& blocks,
    absl::Span<const TokenId> tokens, TokenPos start, Wanted wanted) {
  std::vector<models::StepRow> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({tokens[i], start + static_cast<TokenPos>(i), 0,
                    wanted == Wanted::kAll ||
                        (wanted == Wanted::kLast && i + 1 == tokens.size())});
  }
  const std::vector<models::StepSequence> sequences = {blocks.View()};
  return model.Step({rows, sequences});
}

}  // namespace everwarm

#endif  // EVERWARM_TESTING_MODEL_HARNESS_H_
