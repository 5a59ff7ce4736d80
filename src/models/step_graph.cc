#include "models/step_graph.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace everwarm::models {
namespace {

// Above what any architecture here adds for one layer, and outside the layers.
constexpr size_t kNodesPerLayer = 96;
// The same for each expert that a row takes.
constexpr size_t kNodesPerExpert = 2;
constexpr size_t kNodesOutside = 64;

// A batch of decoding sequences has few shapes; prefill chunks have a usual one
// and a remainder each.
constexpr size_t kMaxGraphs = 16;
// Activations of a 512-row step take tens of megabytes, those of decoding less
// than one.
constexpr size_t kMaxBytes = size_t{256} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<StepGraph>> StepGraph::Build(
    const Architecture& architecture, StepState& state,
    const StepShape& shape) {
  const Hyperparameters& h = architecture.hyperparameters();
  const size_t max_nodes =
      kNodesOutside +
      h.num_layers * (kNodesPerLayer + kNodesPerExpert * h.experts_used);
  std::unique_ptr<StepGraph> step(new StepGraph(shape));
  step->context_.reset(
      ggml_init({max_nodes * ggml_tensor_overhead() +
                     ggml_graph_overhead_custom(max_nodes, false),
                 nullptr, true}));
  if (step->context_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for a graph");
  }
  step->graph_ = ggml_new_graph_custom(step->context_.get(), max_nodes, false);
  GraphBuilder builder(step->context_.get(), step->graph_, &state,
                       &step->nodes_, shape.rows, shape.wanted);
  step->logits_ = architecture.Build(builder);
  step->inputs_ = builder.inputs();
  if (step->logits_ != nullptr) {
    ggml_set_output(step->logits_);
    ggml_build_forward_expand(step->graph_, step->logits_);
  }
  step->allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (!ggml_gallocr_alloc_graph(step->allocator_.get(), step->graph_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for the activations of a step of ", shape.rows, " rows"));
  }
  return step;
}

size_t StepGraph::bytes() const {
  return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

absl::StatusOr<StepGraph*> StepGraphCache::Get(const StepShape& shape) {
  const auto found =
      std::find_if(graphs_.begin(), graphs_.end(),
                   [&](const auto& graph) { return graph->shape() == shape; });
  if (found != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, found);
    return graphs_.front().get();
  }
  // Room is made first, so that two large graphs never meet.
  size_t kept = 0;
  size_t bytes = 0;
  for (auto graph = graphs_.begin(); graph != graphs_.end();) {
    bytes += (*graph)->bytes();
    ++kept;
    graph = kept < kMaxGraphs && bytes <= kMaxBytes / 2 ? std::next(graph)
                                                        : graphs_.erase(graph);
  }
  EW_ASSIGN_OR_RETURN(std::unique_ptr<StepGraph> graph,
                      StepGraph::Build(architecture_, state_, shape));
  graphs_.push_front(std::move(graph));
  return graphs_.front().get();
}

}  // namespace everwarm::models
