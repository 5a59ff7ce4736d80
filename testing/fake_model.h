// A model without weights whose logits depend on every byte of KV that a
// position may see, and on a state that is a running hash of all tokens so far:
// one wrong, missing, foreign or stale byte changes what is generated.
#ifndef EVERWARM_TESTING_FAKE_MODEL_H_
#define EVERWARM_TESTING_FAKE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/model.h"

namespace everwarm {

// Threads: as models::Model.
class FakeModel final : public models::Model {
 public:
  static constexpr uint32_t kVocab = 97;

  // A full group, a window group when `window` is not 0, and a recurrent group
  // in front of them with `states`.
  explicit FakeModel(uint32_t block_tokens, uint32_t window,
                     bool states = false) {
    info_.name = "fake";
    info_.architecture = "fake";
    info_.vocab_size = kVocab;
    info_.train_context = 1 << 20;
    info_.row_independent = true;
    const BlockGeometry geometry(2, block_tokens, {{1, 8}, {2, 4}});
    if (states) {
      AddGroup("recurrent", 0, BlockGeometry(2, 1, {{1, 8}, {1, 24}}), {4, 5});
      groups_.back().recurrent = true;
    }
    AddGroup("full", 0, geometry, {0, 1});
    if (window != 0) AddGroup("window", window, geometry, {2, 3});
  }

  const models::ModelInfo& info() const override { return info_; }
  const std::vector<models::ModelGroup>& groups() const override {
    return groups_;
  }

  absl::StatusOr<absl::Span<const float>> Step(
      const models::StepInput& input) override {
    if (on_step) {
      on_step(input);
    }
    if (fail_next_step) {
      fail_next_step = false;
      return absl::InternalError("the step was told to fail");
    }
    logits_.clear();
    for (const models::StepRow& row : input.rows) {
      const models::StepSequence& sequence = input.sequences[row.sequence];
      Write(sequence, row);
      if (row.wants_logits) {
        AddLogits(Read(sequence, row.position));
      }
    }
    return logits_;
  }

  // Called at the start of every step, on the engine's thread.
  std::function<void(const models::StepInput&)> on_step;
  bool fail_next_step = false;

 private:
  void AddGroup(const char* name, uint32_t window,
                const BlockGeometry& geometry, std::vector<uint32_t> layers) {
    models::ModelGroup& group = groups_.emplace_back();
    group.name = name;
    group.window = window;
    group.geometry = geometry;
    group.layers = std::move(layers);
  }

  static uint64_t Mix(uint64_t h, uint64_t value) {
    h ^= value + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2);
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 29);
  }

  // Calls visit(bytes, size) for each of the token's pieces in the slot.
  template <typename Visit>
  static void ForEachPiece(const BlockGeometry& geometry, std::byte* slot,
                           uint32_t at, Visit visit) {
    for (uint32_t layer = 0; layer < geometry.num_layers(); ++layer) {
      for (uint32_t p = 0; p < geometry.planes().size(); ++p) {
        const PlaneGeometry& plane = geometry.planes()[p];
        for (uint32_t head = 0; head < plane.heads; ++head) {
          visit(slot + geometry.PlaneOffset(layer, p) +
                    head * geometry.HeadStride(p) +
                    size_t{at} * plane.token_bytes,
                plane.token_bytes);
        }
      }
    }
  }

  void Write(const models::StepSequence& sequence,
             const models::StepRow& row) const {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const BlockGeometry& geometry = groups_[g].geometry.rest;
      if (groups_[g].recurrent) {
        GoOn(geometry, sequence.groups[g][0], row);
        continue;
      }
      std::byte* slot =
          sequence.groups[g][row.position / geometry.block_tokens()];
      uint64_t h = Mix(g + 1, static_cast<uint64_t>(row.token));
      h = Mix(h, row.position);
      ForEachPiece(geometry, slot, row.position % geometry.block_tokens(),
                   [&](std::byte* bytes, uint32_t size) {
                     h = Mix(h, size);
                     std::memcpy(bytes, &h, std::min<size_t>(size, sizeof h));
                   });
    }
  }

  // The state after one token more. Position 0 begins with zeros.
  static void GoOn(const BlockGeometry& geometry, std::byte* slot,
                   const models::StepRow& row) {
    ForEachPiece(geometry, slot, 0, [&](std::byte* bytes, uint32_t size) {
      for (uint32_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t h = 0;
        std::memcpy(&h, bytes + at, sizeof h);
        h = Mix(Mix(h + at, static_cast<uint64_t>(row.token)), row.position);
        std::memcpy(bytes + at, &h, sizeof h);
      }
    });
  }

  uint64_t Read(const models::StepSequence& sequence, TokenPos position) const {
    uint64_t h = 1;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const BlockGeometry& geometry = groups_[g].geometry.rest;
      if (groups_[g].recurrent) {
        const std::byte* const state = sequence.groups[g][0];
        for (size_t at = 0; at < geometry.token_bytes();
             at += sizeof(uint64_t)) {
          uint64_t value = 0;
          std::memcpy(&value, state + at, sizeof value);
          h = Mix(h, value);
        }
        continue;
      }
      const TokenPos window = groups_[g].window;
      const TokenPos first =
          window == 0 || position < window ? 0 : position - window + 1;
      for (TokenPos at = first; at <= position; ++at) {
        ForEachPiece(geometry, sequence.groups[g][at / geometry.block_tokens()],
                     at % geometry.block_tokens(),
                     [&](const std::byte* bytes, uint32_t size) {
                       uint64_t value = 0;
                       std::memcpy(&value, bytes,
                                   std::min<size_t>(size, sizeof value));
                       h = Mix(h, value);
                     });
      }
    }
    return h;
  }

  void AddLogits(uint64_t h) {
    for (uint32_t token = 0; token < kVocab; ++token) {
      logits_.push_back(static_cast<float>(Mix(h, token) % 100000) * 1e-4f);
    }
  }

  models::ModelInfo info_;
  std::vector<models::ModelGroup> groups_;
  std::vector<float> logits_;
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_FAKE_MODEL_H_
