// Whether a step can be computed, found out before anything is touched.
#ifndef EVERWARM_MODELS_STEP_INPUT_H_
#define EVERWARM_MODELS_STEP_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "models/model.h"

namespace everwarm::models {

// Whether `input` is as model.h says, for a model of these groups.
// Errors: kInvalidArgument, with the row's sequence, group and position.
absl::Status CheckStepInput(const StepInput& input,
                            const std::vector<ModelGroup>& groups,
                            uint32_t vocab_size);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_STEP_INPUT_H_
