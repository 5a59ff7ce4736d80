// Layers that remember a sequence in a state of fixed size: short convolutions,
// the scan of Mamba-2, the gated delta rule.
//
// Each goes through the rows of a sequence one by one, in order of position,
// and leaves its state as it is after the last. A row's result depends on the
// sequence's earlier rows and its own inputs, and on nothing else: not on how
// the rows are cut into calls, not on other sequences, not on the number of
// threads. Vectors lie across channels, and every sum of a channel has one
// order:
//
//   convolution   out = fma over taps, the oldest first, from the bias or 0
//   scan          state = fma(b, x * dt, state * decay), out = fma of state * c
//                 over the state's dimensions in order, from skip * x
//   delta rule    delta = (v - fma of (state * decay) * k over k's dimensions
//                 in order, from 0) * beta;  state = fma(k, delta, state *
//                 decay);  out = fma of state * q in the same order, from 0
//
// "fma" is fused where the instruction set has it (kernels/numerics.h).
//
// Threads:  Call each function once per thread, with thread = 0 ..
//           num_threads - 1; they may run at once. No allocation, no failure.
#ifndef EVERWARM_KERNELS_RECURRENT_H_
#define EVERWARM_KERNELS_RECURRENT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace everwarm::kernels {

// The rows of one sequence in a call.
struct SequenceRows {
  // The slot with the sequence's state; nobody else touches it.
  std::byte* slot = nullptr;
  // Indices of rows, in order of position.
  absl::Span<const uint32_t> rows;
};

// A matrix whose rows may lie apart: row r begins at data + r * stride floats.
struct RowMatrix {
  const float* data = nullptr;
  size_t stride = 0;
  const float* Row(size_t row) const { return data + row * stride; }
};

// A convolution of every channel with its own few taps, over this and the last
// positions.
struct ShortConvArgs {
  uint32_t channels = 0;
  uint32_t taps = 0;        // at least 1
  size_t state_offset = 0;  // bytes in a slot: [taps - 1, channels] f32, the
                            // last inputs, oldest first
  const float* weights = nullptr;  // [channels, taps], oldest first
  const float* bias = nullptr;     // [channels], or null
  RowMatrix in;                    // [rows, channels]
  float* out = nullptr;            // [rows, channels]
};

// Requires: taps <= kMaxTaps.
inline constexpr uint32_t kMaxTaps = 16;
void ShortConv(const ShortConvArgs& args,
               absl::Span<const SequenceRows> sequences, uint32_t thread,
               uint32_t num_threads);

// The recurrence of Mamba-2 (Dao and Gu 2024), with one decay for a head:
//   state[n][d] = state[n][d] * decay + b[n] * x[d] * dt
//   out[d]      = sum over n of c[n] * state[n][d], + skip * x[d]
struct ScanArgs {
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t state_dim = 0;
  uint32_t groups = 0;      // divides heads; head h reads group
                            // h / (heads / groups) of b and c
  size_t state_offset = 0;  // bytes in a slot: [heads, state_dim, head_dim] f32
  RowMatrix x;              // [rows, heads, head_dim]
  RowMatrix dt;             // [rows, heads]
  RowMatrix decay;          // [rows, heads]
  RowMatrix b;              // [rows, groups, state_dim]
  RowMatrix c;              // [rows, groups, state_dim]
  const float* skip = nullptr;  // [heads]
  float* out = nullptr;         // [rows, heads, head_dim]
};
void Scan(const ScanArgs& args, absl::Span<const SequenceRows> sequences,
          uint32_t thread, uint32_t num_threads);

// The gated delta rule (Yang et al. 2024), with one decay and one rate for a
// head:
//   delta[j]    = (v[j] - sum over i of state[i][j] * decay * k[i]) * beta
//   state[i][j] = state[i][j] * decay + k[i] * delta[j]
//   out[j]      = sum over i of q[i] * state[i][j]
struct DeltaRuleArgs {
  uint32_t heads = 0;
  uint32_t key_heads = 0;   // divides heads; head h reads key head
                            // h % key_heads of q and k
  uint32_t key_dim = 0;     // of one head of q and k
  uint32_t value_dim = 0;   // of one head of v
  size_t state_offset = 0;  // bytes in a slot: [heads, key_dim, value_dim] f32
  RowMatrix q;              // [rows, key_heads, key_dim]
  RowMatrix k;              // [rows, key_heads, key_dim]
  RowMatrix v;              // [rows, heads, value_dim]
  RowMatrix decay;          // [rows, heads]
  RowMatrix beta;           // [rows, heads]
  float* out = nullptr;     // [rows, heads, value_dim]
};
void DeltaRule(const DeltaRuleArgs& args,
               absl::Span<const SequenceRows> sequences, uint32_t thread,
               uint32_t num_threads);

// The scalar twins: the same with sums in double precision, on one thread.
// States are kept in f32 between rows, as the kernels do.
void ShortConvReference(const ShortConvArgs& args,
                        absl::Span<const SequenceRows> sequences);
void ScanReference(const ScanArgs& args,
                   absl::Span<const SequenceRows> sequences);
void DeltaRuleReference(const DeltaRuleArgs& args,
                        absl::Span<const SequenceRows> sequences);

}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_RECURRENT_H_
