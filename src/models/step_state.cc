#include "models/step_state.h"

#include <utility>

namespace everwarm::models {

StepState::StepState(const Hyperparameters& hyperparameters,
                     const std::vector<ModelGroup>& groups) {
  places_.resize(hyperparameters.num_layers);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const BySpan<BlockGeometry>& geometry = groups[g].geometry;
    std::unique_ptr<GroupStep> step;
    if (!groups[g].recurrent) {
      step = std::make_unique<GroupStep>();
      step->shape =
          MakeShape(hyperparameters, groups[g], geometry.rest.block_tokens());
    }
    for (uint32_t i = 0; i < groups[g].layers.size(); ++i) {
      Place& place = places_[groups[g].layers[i]];
      place.group = g;
      if (step != nullptr) {
        place.offsets = kernels::KvOffsets(step->shape, geometry, i);
      } else {
        // One token is a whole state, so a plane's offset is that of its bytes.
        place.state.convolution = geometry.rest.PlaneOffset(i, 0);
        if (geometry.rest.planes().size() > 1) {
          place.state.recurrence = geometry.rest.PlaneOffset(i, 1);
        }
      }
    }
    groups_.push_back(std::move(step));
  }
}

void StepState::Prepare(const StepInput& input, uint32_t num_wanted,
                        uint32_t num_threads) {
  const bool some_wanted = num_wanted > 0 && num_wanted < input.rows.size();
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g] == nullptr) {
      recurrent_.Prepare(input, g);
    } else {
      PrepareAttention(input, g, some_wanted, num_threads);
    }
  }
}

void StepState::PrepareAttention(const StepInput& input, uint32_t index,
                                 bool some_wanted, uint32_t num_threads) {
  GroupStep& group = *groups_[index];
  group.rows.clear();
  group.wanted.clear();
  for (const StepRow& row : input.rows) {
    const kernels::AttentionRow attention_row = {
        input.sequences[row.sequence].groups[index].data(), row.position};
    group.rows.push_back(attention_row);
    if (row.wants_logits) {
      group.wanted.push_back(attention_row);
    }
  }
  group.plan.Prepare(group.shape, group.rows, num_threads);
  if (some_wanted && places_.back().group == index) {
    group.wanted_plan.Prepare(group.shape, group.wanted, num_threads);
  }
}

}  // namespace everwarm::models
