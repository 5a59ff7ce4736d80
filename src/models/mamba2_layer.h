// Mamba-2 (Dao and Gu 2024) as a part of a layer: a short convolution, the scan
// over a state, and a gate.
#ifndef EVERWARM_MODELS_MAMBA2_LAYER_H_
#define EVERWARM_MODELS_MAMBA2_LAYER_H_

#include <cstdint>

#include "ggml.h"
#include "models/graph_builder.h"
#include "models/hyperparameters.h"
#include "models/ssm_sizes.h"
#include "models/tensor_scope.h"

namespace everwarm::models {

struct Mamba2Weights {
  // To the gate, the convolution's channels (x, b, c) and the time steps.
  LinearWeights in;
  ggml_tensor* taps = nullptr;       // [channels, taps]
  ggml_tensor* taps_bias = nullptr;  // [channels]
  ggml_tensor* dt_bias = nullptr;    // [heads]
  ggml_tensor* a = nullptr;          // [heads]; negative
  ggml_tensor* skip = nullptr;       // [heads]
  ggml_tensor* norm = nullptr;       // [groups, inner / groups]
  LinearWeights out;
};

// The names that all architectures use.
Mamba2Weights DeclareMamba2(TensorScope& scope,
                            const Hyperparameters& hyperparameters,
                            const SsmSizes& sizes);

// What the layer mixes over positions, for all rows or those that are asked
// for; null when these are none. The state goes on over all rows in any case.
// Shapes: result [rows or wanted, embedding_dim].
ggml_tensor* AddMamba2(GraphBuilder& graph,
                       const Hyperparameters& hyperparameters,
                       const SsmSizes& sizes, const Mamba2Weights& weights,
                       const LayerInput& input);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_MAMBA2_LAYER_H_
