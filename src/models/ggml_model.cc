#include "models/ggml_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/quiet_log.h"
#include "models/step_input.h"

namespace everwarm::models {
namespace {

// Sizes of the windows that layers have, in order of their first layers; 0,
// layers that see all positions, comes first.
std::vector<uint32_t> WindowSizes(const Hyperparameters& h) {
  std::vector<uint32_t> sizes = {0};
  for (const uint32_t window : h.windows) {
    if (std::find(sizes.begin(), sizes.end(), window) == sizes.end()) {
      sizes.push_back(window);
    }
  }
  return sizes;
}

// Layers with a window of one size, by codec, in order of their first layers.
std::vector<ModelGroup> MakeKind(const Hyperparameters& h,
                                 const LoadOptions& options, uint32_t window,
                                 const std::string& name) {
  std::vector<ModelGroup> groups;
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    if (h.recurrent[layer] || h.windows[layer] != window) {
      continue;
    }
    const BySpan<LayerScheme> scheme =
        options.kv.LayerBySpan(layer, window != 0, options.block_tokens);
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const ModelGroup& other) { return other.scheme == scheme; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), ModelGroup());
      group->window = window;
      group->scheme = scheme;
    }
    group->layers.push_back(layer);
  }
  for (ModelGroup& group : groups) {
    group.name = name;
    if (groups.size() > 1) {
      absl::StrAppend(&group.name, ".", group.scheme.rest.name);
    }
    // Slots of the group's layers, which are in ascending order.
    group.geometry =
        kernels::KvGeometry(MakeShape(h, group, options.block_tokens),
                            static_cast<uint32_t>(group.layers.size()));
  }
  return groups;
}

// The recurrent layers; one without layers if the model has none.
ModelGroup MakeRecurrent(const Hyperparameters& h) {
  ModelGroup group;
  group.name = "recurrent";
  group.recurrent = true;
  group.scheme.rest.name = "f32";
  for (uint32_t layer = 0; layer < h.num_layers; ++layer) {
    if (h.recurrent[layer]) {
      group.layers.push_back(layer);
    }
  }
  std::vector<PlaneGeometry> planes;
  for (const uint32_t floats : {h.state.convolution, h.state.recurrence}) {
    if (floats > 0) {
      planes.push_back({1, floats * uint32_t{sizeof(float)}});
    }
  }
  group.geometry = BlockGeometry(static_cast<uint32_t>(group.layers.size()), 1,
                                 std::move(planes));
  return group;
}

// Full layers first, recurrent ones last.
std::vector<ModelGroup> MakeGroups(const Hyperparameters& h,
                                   const LoadOptions& options) {
  const std::vector<uint32_t> sizes = WindowSizes(h);
  std::vector<ModelGroup> groups;
  for (const uint32_t window : sizes) {
    std::string name = window == 0 ? (h.latent ? "latent" : "full") : "window";
    if (window != 0 && sizes.size() > 2) {
      absl::StrAppend(&name, window);
    }
    for (ModelGroup& group : MakeKind(h, options, window, name)) {
      groups.push_back(std::move(group));
    }
  }
  ModelGroup recurrent = MakeRecurrent(h);
  if (!recurrent.layers.empty()) {
    groups.push_back(std::move(recurrent));
  }
  return groups;
}

ModelInfo MakeInfo(const Weights& weights, const Hyperparameters& h) {
  ModelInfo info;
  info.path = weights.file().path();
  info.stamp = weights.file().stamp();
  info.name = weights.file().String("general.name").value_or("");
  if (info.name.empty()) {
    info.name = std::filesystem::path(info.path).stem().string();
  }
  info.architecture = h.architecture;
  info.num_layers = h.num_layers;
  info.embedding_dim = h.embedding_dim;
  info.vocab_size = h.vocab_size;
  info.train_context = h.train_context;
  info.weight_bytes = weights.bytes();
  info.row_independent = weights.row_independent();
  info.variant = h.variant;
  return info;
}

}  // namespace

GgmlModel::GgmlModel(std::unique_ptr<Weights> weights,
                     std::unique_ptr<Architecture> architecture,
                     const LoadOptions& options)
    : weights_(std::move(weights)),
      architecture_(std::move(architecture)),
      num_threads_(options.num_threads),
      info_(MakeInfo(*weights_, architecture_->hyperparameters())),
      groups_(MakeGroups(architecture_->hyperparameters(), options)),
      state_(architecture_->hyperparameters(), groups_),
      graphs_(*architecture_, state_) {}

absl::StatusOr<std::unique_ptr<GgmlModel>> GgmlModel::Make(
    std::unique_ptr<Weights> weights,
    std::unique_ptr<Architecture> architecture, const LoadOptions& options) {
  EW_RETURN_IF_ERROR(options.kv.Check(architecture->hyperparameters()));
  std::unique_ptr<GgmlModel> model(
      new GgmlModel(std::move(weights), std::move(architecture), options));
  ggml_threadpool_params params =
      ggml_threadpool_params_default(static_cast<int>(options.num_threads));
  for (uint32_t i = 0; i < options.num_threads && !options.cpus.empty(); ++i) {
    params.cpumask[options.cpus[i]] = true;
    params.strict_cpu = true;
  }
  model->pool_.reset(ggml_threadpool_new(&params));
  if (model->pool_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", options.num_threads, " threads"));
  }
  return model;
}

void GgmlModel::FillInputs(const StepInput& input,
                           const GraphInputs& inputs) const {
  const auto data = [](ggml_tensor* tensor) {
    return tensor == nullptr ? nullptr : static_cast<int32_t*>(tensor->data);
  };
  int32_t* tokens = data(inputs.tokens);
  int32_t* positions = data(inputs.positions);
  int32_t* wanted = data(inputs.wanted);
  int32_t* wanted_positions = data(inputs.wanted_positions);
  if (inputs.heads != nullptr) {
    const auto heads =
        static_cast<int32_t>(architecture_->hyperparameters().num_heads);
    for (int64_t i = 0; i < ggml_nelements(inputs.heads); ++i) {
      data(inputs.heads)[i] = static_cast<int32_t>(i) % heads;
    }
  }
  if (inputs.zeros != nullptr) {
    std::fill_n(data(inputs.zeros), input.rows.size(), 0);
  }
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const StepRow& row = input.rows[i];
    const auto position = static_cast<int32_t>(row.position);
    tokens[i] = row.token;
    positions[i] = position;
    if (wanted != nullptr && row.wants_logits) {
      *wanted++ = static_cast<int32_t>(i);
      *wanted_positions++ = position;
    }
  }
}

absl::StatusOr<absl::Span<const float>> GgmlModel::Step(
    const StepInput& input) {
  EW_RETURN_IF_ERROR(CheckStepInput(input, groups_, info_.vocab_size));
  StepShape shape{.rows = static_cast<uint32_t>(input.rows.size())};
  for (const StepRow& row : input.rows) {
    shape.wanted += row.wants_logits ? 1 : 0;
  }
  EW_ASSIGN_OR_RETURN(StepGraph* const step, graphs_.Get(shape));
  ggml_cplan plan = ggml_graph_plan(
      step->graph(), static_cast<int>(num_threads_), pool_.get());
  if (work_.size() < plan.work_size) {
    work_.resize(plan.work_size);
  }
  plan.work_data = work_.data();
  FillInputs(input, step->inputs());
  state_.Prepare(input, shape.wanted, static_cast<uint32_t>(plan.n_threads));

  TakeLibraryErrors();
  const ggml_status status = ggml_graph_compute(step->graph(), &plan);
  if (status != GGML_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat(
        "ggml: ", ggml_status_to_string(status), " ", TakeLibraryErrors()));
  }
  if (step->logits() == nullptr) {
    return absl::Span<const float>();
  }
  return absl::Span<const float>(
      static_cast<const float*>(step->logits()->data),
      size_t{shape.wanted} * info_.vocab_size);
}

}  // namespace everwarm::models
