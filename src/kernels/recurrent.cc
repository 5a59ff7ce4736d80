#include "kernels/recurrent.h"

#include <algorithm>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// One lane at a time for what is left of a vector: the same operations in the
// same order, so a channel's bits do not depend on where it lies.
using DF = hn::ScalableTag<float>;
using D1 = hn::CappedTag<float, 1>;
// Vectors side by side: enough to cover the latency of an fma.
constexpr int kVectors = 4;

// Calls work.Run<vectors>(tag, first channel) until [begin, end) is covered.
template <class Work>
HWY_INLINE void ForChannels(uint32_t begin, uint32_t end, const Work& work) {
  const DF d;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(d));
  uint32_t i = begin;
  for (; end - i >= kVectors * lanes; i += kVectors * lanes) {
    work.template Run<kVectors>(d, i);
  }
  for (; end - i >= lanes; i += lanes) work.template Run<1>(d, i);
  for (; i < end; ++i) work.template Run<1>(D1(), i);
}

// All rows of one sequence, for some channels.
struct ConvWork {
  const ShortConvArgs& args;
  const SequenceRows& sequence;

  float* State() const {
    return reinterpret_cast<float*>(sequence.slot + args.state_offset);
  }
  // What tap `tap` of row `index` of the sequence reads: the state, where that
  // is older than the rows.
  HWY_INLINE const float* Input(size_t index, uint32_t tap) const {
    const size_t at = index + tap;
    return at < args.taps - 1
               ? State() + at * args.channels
               : args.in.Row(sequence.rows[at - (args.taps - 1)]);
  }

  template <int kCount, class D>
  HWY_INLINE void Run(D d, uint32_t channel) const {
    const size_t lanes = hn::Lanes(d);
    // By tap, then channel, as vectors read them.
    HWY_ALIGN float weights[kMaxTaps * kCount * hn::MaxLanes(D())];
    for (uint32_t tap = 0; tap < args.taps; ++tap) {
      for (size_t i = 0; i < kCount * lanes; ++i) {
        weights[tap * kCount * lanes + i] =
            args.weights[(channel + i) * args.taps + tap];
      }
    }
    for (size_t r = 0; r < sequence.rows.size(); ++r) {
      float* out = args.out + sequence.rows[r] * size_t{args.channels};
      for (size_t v = 0; v < kCount * lanes; v += lanes) {
        auto sum = args.bias == nullptr ? hn::Zero(d)
                                        : hn::LoadU(d, args.bias + channel + v);
        for (uint32_t tap = 0; tap < args.taps; ++tap) {
          sum = hn::MulAdd(hn::LoadU(d, weights + tap * kCount * lanes + v),
                           hn::LoadU(d, Input(r, tap) + channel + v), sum);
        }
        hn::StoreU(sum, d, out + channel + v);
      }
    }
    // The last inputs; those of the state move from later to earlier places.
    for (uint32_t tap = 0; tap + 1 < args.taps; ++tap) {
      float* to = State() + tap * size_t{args.channels} + channel;
      const float* from = Input(sequence.rows.size(), tap) + channel;
      for (size_t v = 0; v < kCount * lanes; v += lanes) {
        hn::StoreU(hn::LoadU(d, from + v), d, to + v);
      }
    }
  }
};

// Some columns of a head's state.
struct StateColumns {
  float* HWY_RESTRICT first;
  uint32_t rows;
  size_t stride;  // floats from row to row
};

// Every row n of the state decays and takes left[n] * right on; `sums` get
// query[n] times what it has become.
template <int kCount, class D>
HWY_INLINE void UpdateState(D d, const StateColumns& state, hn::Vec<D> decay,
                            const float* HWY_RESTRICT left,
                            const float* HWY_RESTRICT query,
                            const hn::Vec<D> (&right)[kCount],
                            hn::Vec<D> (&sums)[kCount]) {
  for (uint32_t n = 0; n < state.rows; ++n) {
    const auto l = hn::Set(d, left[n]);
    const auto q = hn::Set(d, query[n]);
    for (int v = 0; v < kCount; ++v) {
      float* at = state.first + n * state.stride + v * hn::Lanes(d);
      const auto next =
          hn::MulAdd(l, right[v], hn::Mul(hn::LoadU(d, at), decay));
      hn::StoreU(next, d, at);
      sums[v] = hn::MulAdd(next, q, sums[v]);
    }
  }
}

// All rows of one sequence, for one head.
struct ScanWork {
  const ScanArgs& args;
  const SequenceRows& sequence;
  uint32_t head;

  template <int kCount, class D>
  HWY_INLINE void Run(D d, uint32_t channel) const {
    const size_t lanes = hn::Lanes(d);
    const size_t dim = args.head_dim;
    const size_t of_head = head * dim + channel;
    const size_t of_group =
        head / (args.heads / args.groups) * size_t{args.state_dim};
    float* HWY_RESTRICT state =
        reinterpret_cast<float*>(sequence.slot + args.state_offset) +
        head * size_t{args.state_dim} * dim + channel;
    for (const uint32_t row : sequence.rows) {
      const float* HWY_RESTRICT b = args.b.Row(row) + of_group;
      const float* HWY_RESTRICT c = args.c.Row(row) + of_group;
      const auto decay = hn::Set(d, args.decay.Row(row)[head]);
      const auto dt = hn::Set(d, args.dt.Row(row)[head]);
      const auto skip = hn::Set(d, args.skip[head]);
      hn::Vec<D> in[kCount];
      hn::Vec<D> sum[kCount];
      for (int v = 0; v < kCount; ++v) {
        const auto x = hn::LoadU(d, args.x.Row(row) + of_head + v * lanes);
        in[v] = hn::Mul(x, dt);
        sum[v] = hn::Mul(x, skip);
      }
      UpdateState<kCount>(d, {state, args.state_dim, dim}, decay, b, c, in,
                          sum);
      float* out = args.out + row * (args.heads * dim) + of_head;
      for (int v = 0; v < kCount; ++v) hn::StoreU(sum[v], d, out + v * lanes);
    }
  }
};

// All rows of one sequence, for one head.
struct DeltaWork {
  const DeltaRuleArgs& args;
  const SequenceRows& sequence;
  uint32_t head;

  template <int kCount, class D>
  HWY_INLINE void Run(D d, uint32_t channel) const {
    const size_t lanes = hn::Lanes(d);
    const size_t dim = args.value_dim;
    const size_t of_head = head * dim + channel;
    const size_t of_key = head % args.key_heads * size_t{args.key_dim};
    float* HWY_RESTRICT state =
        reinterpret_cast<float*>(sequence.slot + args.state_offset) +
        head * size_t{args.key_dim} * dim + channel;
    for (const uint32_t row : sequence.rows) {
      const float* HWY_RESTRICT q = args.q.Row(row) + of_key;
      const float* HWY_RESTRICT k = args.k.Row(row) + of_key;
      const auto decay = hn::Set(d, args.decay.Row(row)[head]);
      const auto beta = hn::Set(d, args.beta.Row(row)[head]);
      hn::Vec<D> delta[kCount];
      hn::Vec<D> sum[kCount];
      for (int v = 0; v < kCount; ++v) {
        delta[v] = hn::Zero(d);
        sum[v] = hn::Zero(d);
      }
      for (uint32_t i = 0; i < args.key_dim; ++i) {
        const auto ki = hn::Set(d, k[i]);
        for (int v = 0; v < kCount; ++v) {
          const auto old = hn::LoadU(d, state + i * dim + v * lanes);
          delta[v] = hn::MulAdd(hn::Mul(old, decay), ki, delta[v]);
        }
      }
      for (int v = 0; v < kCount; ++v) {
        const auto value = hn::LoadU(d, args.v.Row(row) + of_head + v * lanes);
        delta[v] = hn::Mul(hn::Sub(value, delta[v]), beta);
      }
      UpdateState<kCount>(d, {state, args.key_dim, dim}, decay, k, q, delta,
                          sum);
      float* out = args.out + row * (args.heads * dim) + of_head;
      for (int v = 0; v < kCount; ++v) hn::StoreU(sum[v], d, out + v * lanes);
    }
  }
};

void ConvChannels(const ShortConvArgs& args, const SequenceRows& sequence,
                  uint32_t begin, uint32_t end) {
  ForChannels(begin, end, ConvWork{args, sequence});
}

void ScanHead(const ScanArgs& args, const SequenceRows& sequence,
              uint32_t head) {
  ForChannels(0, args.head_dim, ScanWork{args, sequence, head});
}

void DeltaHead(const DeltaRuleArgs& args, const SequenceRows& sequence,
               uint32_t head) {
  ForChannels(0, args.value_dim, DeltaWork{args, sequence, head});
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everwarm::kernels {
namespace {

HWY_EXPORT(ConvChannels);
HWY_EXPORT(ScanHead);
HWY_EXPORT(DeltaHead);

// Channels of a convolution that a thread takes at a time: whole cache lines.
constexpr uint32_t kChannelBlock = 64;

// Calls work(sequence, part) for this thread's share of all parts of all
// sequences.
template <class Work>
void ForShare(absl::Span<const SequenceRows> sequences, uint32_t parts,
              uint32_t thread, uint32_t num_threads, const Work& work) {
  const size_t total = sequences.size() * parts;
  const size_t last = total * (thread + 1) / num_threads;
  for (size_t i = total * thread / num_threads; i < last; ++i) {
    work(sequences[i / parts], static_cast<uint32_t>(i % parts));
  }
}

}  // namespace

void ShortConv(const ShortConvArgs& args,
               absl::Span<const SequenceRows> sequences, uint32_t thread,
               uint32_t num_threads) {
  const uint32_t blocks = (args.channels + kChannelBlock - 1) / kChannelBlock;
  ForShare(sequences, blocks, thread, num_threads,
           [&](const SequenceRows& sequence, uint32_t block) {
             const uint32_t begin = block * kChannelBlock;
             HWY_DYNAMIC_DISPATCH(ConvChannels)
             (args, sequence, begin,
              std::min(begin + kChannelBlock, args.channels));
           });
}

void Scan(const ScanArgs& args, absl::Span<const SequenceRows> sequences,
          uint32_t thread, uint32_t num_threads) {
  ForShare(sequences, args.heads, thread, num_threads,
           [&](const SequenceRows& sequence, uint32_t head) {
             HWY_DYNAMIC_DISPATCH(ScanHead)(args, sequence, head);
           });
}

void DeltaRule(const DeltaRuleArgs& args,
               absl::Span<const SequenceRows> sequences, uint32_t thread,
               uint32_t num_threads) {
  ForShare(sequences, args.heads, thread, num_threads,
           [&](const SequenceRows& sequence, uint32_t head) {
             HWY_DYNAMIC_DISPATCH(DeltaHead)(args, sequence, head);
           });
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
