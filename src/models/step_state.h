// What the nodes of a graph read that differs from step to step: block tables,
// positions, live states.
#ifndef EVERWARM_MODELS_STEP_STATE_H_
#define EVERWARM_MODELS_STEP_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "models/attention_nodes.h"
#include "models/hyperparameters.h"
#include "models/model.h"
#include "models/recurrent_nodes.h"

namespace everwarm::models {

// Where a recurrent layer's planes begin in a state's slot, bytes.
struct StateOffsets {
  size_t convolution = 0;
  size_t recurrence = 0;  // where the layers have one
};

// Threads: Prepare() while no graph is computed.
class StepState {
 public:
  StepState(const Hyperparameters& hyperparameters,
            const std::vector<ModelGroup>& groups);

  // Plans the step for `num_threads` threads. The block tables must stay valid
  // until it has been computed.
  void Prepare(const StepInput& input, uint32_t num_wanted,
               uint32_t num_threads);

  // Of a layer with attention: its group's work and its place in the slots.
  GroupStep& GroupOf(uint32_t layer) { return *groups_[places_[layer].group]; }
  const kernels::LayerOffsets& OffsetsOf(uint32_t layer) const {
    return places_[layer].offsets;
  }
  // Of a recurrent layer.
  const RecurrentStep& recurrent() const { return recurrent_; }
  const StateOffsets& StateOf(uint32_t layer) const {
    return places_[layer].state;
  }

 private:
  struct Place {
    uint32_t group = 0;
    kernels::LayerOffsets offsets;
    StateOffsets state;
  };

  void PrepareAttention(const StepInput& input, uint32_t group,
                        bool some_wanted, uint32_t num_threads);

  std::vector<std::unique_ptr<GroupStep>> groups_;  // null: recurrent
  RecurrentStep recurrent_;
  std::vector<Place> places_;  // by layer
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_STEP_STATE_H_
