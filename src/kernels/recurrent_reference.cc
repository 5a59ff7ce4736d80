#include <vector>

#include "kernels/recurrent.h"

namespace everwarm::kernels {
namespace {

float* State(const SequenceRows& sequence, size_t offset) {
  return reinterpret_cast<float*>(sequence.slot + offset);
}

void ConvSequence(const ShortConvArgs& args, const SequenceRows& sequence) {
  float* state = State(sequence, args.state_offset);
  const uint32_t kept = args.taps - 1;
  for (uint32_t c = 0; c < args.channels; ++c) {
    std::vector<float> inputs;
    for (uint32_t tap = 0; tap < kept; ++tap) {
      inputs.push_back(state[tap * size_t{args.channels} + c]);
    }
    for (const uint32_t row : sequence.rows) {
      inputs.push_back(args.in.Row(row)[c]);
      double sum = args.bias == nullptr ? 0.0 : double{args.bias[c]};
      for (uint32_t tap = 0; tap < args.taps; ++tap) {
        sum += double{args.weights[c * size_t{args.taps} + tap]} *
               double{inputs[inputs.size() - args.taps + tap]};
      }
      args.out[row * size_t{args.channels} + c] = static_cast<float>(sum);
    }
    for (uint32_t tap = 0; tap < kept; ++tap) {
      state[tap * size_t{args.channels} + c] =
          inputs[inputs.size() - kept + tap];
    }
  }
}

void ScanRow(const ScanArgs& args, float* state, uint32_t row, uint32_t head) {
  const size_t dim = args.head_dim;
  const size_t group =
      head / (args.heads / args.groups) * size_t{args.state_dim};
  for (size_t d = 0; d < dim; ++d) {
    const double x = args.x.Row(row)[head * dim + d];
    double sum = x * double{args.skip[head]};
    for (size_t n = 0; n < args.state_dim; ++n) {
      float& s = state[(head * size_t{args.state_dim} + n) * dim + d];
      s = static_cast<float>(double{s} * double{args.decay.Row(row)[head]} +
                             double{args.b.Row(row)[group + n]} * x *
                                 double{args.dt.Row(row)[head]});
      sum += double{s} * double{args.c.Row(row)[group + n]};
    }
    args.out[row * args.heads * dim + head * dim + d] = static_cast<float>(sum);
  }
}

void DeltaRow(const DeltaRuleArgs& args, float* state, uint32_t row,
              uint32_t head) {
  const size_t dim = args.value_dim;
  const float* q = args.q.Row(row) + head % args.key_heads * args.key_dim;
  const float* k = args.k.Row(row) + head % args.key_heads * args.key_dim;
  const double decay = args.decay.Row(row)[head];
  float* of_head = state + head * size_t{args.key_dim} * dim;
  for (size_t j = 0; j < dim; ++j) {
    double known = 0.0;
    for (size_t i = 0; i < args.key_dim; ++i) {
      known += double{of_head[i * dim + j]} * decay * double{k[i]};
    }
    const double delta = (double{args.v.Row(row)[head * dim + j]} - known) *
                         double{args.beta.Row(row)[head]};
    double sum = 0.0;
    for (size_t i = 0; i < args.key_dim; ++i) {
      float& s = of_head[i * dim + j];
      s = static_cast<float>(double{s} * decay + double{k[i]} * delta);
      sum += double{s} * double{q[i]};
    }
    args.out[row * args.heads * dim + head * dim + j] = static_cast<float>(sum);
  }
}

}  // namespace

void ShortConvReference(const ShortConvArgs& args,
                        absl::Span<const SequenceRows> sequences) {
  for (const SequenceRows& sequence : sequences) ConvSequence(args, sequence);
}

void ScanReference(const ScanArgs& args,
                   absl::Span<const SequenceRows> sequences) {
  for (const SequenceRows& sequence : sequences) {
    for (const uint32_t row : sequence.rows) {
      for (uint32_t head = 0; head < args.heads; ++head) {
        ScanRow(args, State(sequence, args.state_offset), row, head);
      }
    }
  }
}

void DeltaRuleReference(const DeltaRuleArgs& args,
                        absl::Span<const SequenceRows> sequences) {
  for (const SequenceRows& sequence : sequences) {
    for (const uint32_t row : sequence.rows) {
      for (uint32_t head = 0; head < args.heads; ++head) {
        DeltaRow(args, State(sequence, args.state_offset), row, head);
      }
    }
  }
}

}  // namespace everwarm::kernels
