// Recurrent kernels: against their scalar twins, and bit for bit however the
// rows are cut.
#include "kernels/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace everwarm::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kRows = 41;
// Of the layer in its slot; bytes around the state must stay as they are.
constexpr size_t kStateOffset = 20;

// Rows with NaN between them.
class Matrix {
 public:
  Matrix(uint32_t width, uint32_t seed, float mean, float deviation)
      : stride_(width + seed % 5), data_(kRows * stride_, kNan) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(mean, deviation);
    for (uint32_t r = 0; r < kRows; ++r) {
      std::generate_n(data_.begin() + r * stride_, width,
                      [&] { return normal(random); });
    }
  }
  RowMatrix View() const { return {data_.data(), stride_}; }

 private:
  size_t stride_;
  std::vector<float> data_;
};

// Numbers from 0 to 1.
std::vector<float> Fractions(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return uniform(random); });
  return values;
}

// One layer with its weights and the inputs of kRows rows.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;
  virtual size_t state_floats() const = 0;
  virtual uint32_t out_width() const = 0;
  // Products in one output, for the bound of its rounding.
  virtual uint32_t terms() const = 0;
  virtual void Run(absl::Span<const SequenceRows> sequences, float* out,
                   uint32_t thread, uint32_t num_threads) const = 0;
  virtual void RunReference(absl::Span<const SequenceRows> sequences,
                            float* out) const = 0;
};

class ConvLayer final : public Layer {
 public:
  ConvLayer(uint32_t channels, uint32_t taps, bool bias)
      : channels_(channels),
        taps_(taps),
        in_(channels, 11, 0.0f, 1.0f),
        weights_(Fractions(size_t{channels} * taps, 12)),
        bias_(Fractions(bias ? channels : 0, 13)) {}

  std::string name() const override {
    return "convolution of " + std::to_string(channels_) + " channels, " +
           std::to_string(taps_) + " taps";
  }
  size_t state_floats() const override { return size_t{taps_ - 1} * channels_; }
  uint32_t out_width() const override { return channels_; }
  uint32_t terms() const override { return taps_; }
  void Run(absl::Span<const SequenceRows> sequences, float* out,
           uint32_t thread, uint32_t num_threads) const override {
    ShortConv(Args(out), sequences, thread, num_threads);
  }
  void RunReference(absl::Span<const SequenceRows> sequences,
                    float* out) const override {
    ShortConvReference(Args(out), sequences);
  }

 private:
  ShortConvArgs Args(float* out) const {
    return {channels_,
            taps_,
            kStateOffset,
            weights_.data(),
            bias_.empty() ? nullptr : bias_.data(),
            in_.View(),
            out};
  }
  const uint32_t channels_;
  const uint32_t taps_;
  const Matrix in_;
  const std::vector<float> weights_;
  const std::vector<float> bias_;
};

class ScanLayer final : public Layer {
 public:
  ScanLayer(uint32_t heads, uint32_t groups, uint32_t head_dim,
            uint32_t state_dim)
      : heads_(heads),
        groups_(groups),
        head_dim_(head_dim),
        state_dim_(state_dim),
        x_(heads * head_dim, 21, 0.0f, 1.0f),
        dt_(heads, 22, 0.3f, 0.1f),
        decay_(heads, 23, 0.7f, 0.1f),
        b_(groups * state_dim, 24, 0.0f, 1.0f),
        c_(groups * state_dim, 26, 0.0f, 1.0f),
        skip_(Fractions(heads, 27)) {}

  std::string name() const override {
    return "scan of " + std::to_string(heads_) + "/" + std::to_string(groups_) +
           " heads, " + std::to_string(head_dim_) + " x " +
           std::to_string(state_dim_);
  }
  size_t state_floats() const override {
    return size_t{heads_} * state_dim_ * head_dim_;
  }
  uint32_t out_width() const override { return heads_ * head_dim_; }
  uint32_t terms() const override { return state_dim_; }
  void Run(absl::Span<const SequenceRows> sequences, float* out,
           uint32_t thread, uint32_t num_threads) const override {
    Scan(Args(out), sequences, thread, num_threads);
  }
  void RunReference(absl::Span<const SequenceRows> sequences,
                    float* out) const override {
    ScanReference(Args(out), sequences);
  }

 private:
  ScanArgs Args(float* out) const {
    return {.heads = heads_,
            .head_dim = head_dim_,
            .state_dim = state_dim_,
            .groups = groups_,
            .state_offset = kStateOffset,
            .x = x_.View(),
            .dt = dt_.View(),
            .decay = decay_.View(),
            .b = b_.View(),
            .c = c_.View(),
            .skip = skip_.data(),
            .out = out};
  }
  const uint32_t heads_;
  const uint32_t groups_;
  const uint32_t head_dim_;
  const uint32_t state_dim_;
  const Matrix x_;
  const Matrix dt_;
  const Matrix decay_;
  const Matrix b_;
  const Matrix c_;
  const std::vector<float> skip_;
};

class DeltaLayer final : public Layer {
 public:
  // Keys are shorter than 1, so that the state stays small.
  DeltaLayer(uint32_t heads, uint32_t key_heads, uint32_t key_dim,
             uint32_t value_dim)
      : heads_(heads),
        key_heads_(key_heads),
        key_dim_(key_dim),
        value_dim_(value_dim),
        q_(key_heads * key_dim, 31, 0.0f, 0.7f / std::sqrt(1.0f * key_dim)),
        k_(key_heads * key_dim, 32, 0.0f, 0.7f / std::sqrt(1.0f * key_dim)),
        v_(heads * value_dim, 33, 0.0f, 1.0f),
        decay_(heads, 34, 0.8f, 0.05f),
        beta_(heads, 36, 0.5f, 0.1f) {}

  std::string name() const override {
    return "delta rule of " + std::to_string(heads_) + "/" +
           std::to_string(key_heads_) + " heads, " + std::to_string(key_dim_) +
           " x " + std::to_string(value_dim_);
  }
  size_t state_floats() const override {
    return size_t{heads_} * key_dim_ * value_dim_;
  }
  uint32_t out_width() const override { return heads_ * value_dim_; }
  uint32_t terms() const override { return 2 * key_dim_; }
  void Run(absl::Span<const SequenceRows> sequences, float* out,
           uint32_t thread, uint32_t num_threads) const override {
    DeltaRule(Args(out), sequences, thread, num_threads);
  }
  void RunReference(absl::Span<const SequenceRows> sequences,
                    float* out) const override {
    DeltaRuleReference(Args(out), sequences);
  }

 private:
  DeltaRuleArgs Args(float* out) const {
    return {.heads = heads_,
            .key_heads = key_heads_,
            .key_dim = key_dim_,
            .value_dim = value_dim_,
            .state_offset = kStateOffset,
            .q = q_.View(),
            .k = k_.View(),
            .v = v_.View(),
            .decay = decay_.View(),
            .beta = beta_.View(),
            .out = out};
  }
  const uint32_t heads_;
  const uint32_t key_heads_;
  const uint32_t key_dim_;
  const uint32_t value_dim_;
  const Matrix q_;
  const Matrix k_;
  const Matrix v_;
  const Matrix decay_;
  const Matrix beta_;
};

// A sequence's slot, its state random and the bytes around it NaN.
class Slot {
 public:
  Slot(const Layer& layer, uint32_t seed)
      : bytes_(2 * kStateOffset + layer.state_floats() * sizeof(float),
               std::byte{0xFF}) {
    const std::vector<float> state = Fractions(layer.state_floats(), seed);
    // A layer may have no state of this kind.
    std::copy_n(reinterpret_cast<const std::byte*>(state.data()),
                state.size() * sizeof(float), bytes_.data() + kStateOffset);
  }
  std::byte* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  float Value(size_t i) const {
    float value;
    std::memcpy(&value, bytes_.data() + kStateOffset + i * sizeof(float),
                sizeof(float));
    return value;
  }
  bool EdgesAreUntouched() const {
    return std::all_of(bytes_.begin(), bytes_.begin() + kStateOffset,
                       [](std::byte b) { return b == std::byte{0xFF}; }) &&
           std::all_of(bytes_.end() - kStateOffset, bytes_.end(),
                       [](std::byte b) { return b == std::byte{0xFF}; });
  }

 private:
  std::vector<std::byte> bytes_;
};

// Two sequences whose rows are mixed, the second with every third.
struct Mixed {
  explicit Mixed(const Layer& layer)
      : slots{Slot(layer, 1), Slot(layer, 2)},
        out(size_t{kRows} * layer.out_width(), kNan) {
    for (uint32_t r = 0; r < kRows; ++r) rows[r % 3 == 2].push_back(r);
  }

  // All rows in calls of at most `chunk` rows of each sequence.
  void Run(const Layer& layer, size_t chunk, uint32_t num_threads) {
    for (size_t at = 0; at < rows[0].size(); at += chunk) {
      std::vector<SequenceRows> sequences;
      for (int s = 0; s < 2; ++s) {
        if (at < rows[s].size()) {
          sequences.push_back(
              {slots[s].data(),
               absl::MakeConstSpan(rows[s]).subspan(at, chunk)});
        }
      }
      for (uint32_t t = 0; t < num_threads; ++t) {
        layer.Run(sequences, out.data(), t, num_threads);
      }
    }
  }

  std::vector<uint32_t> rows[2];
  Slot slots[2];
  std::vector<float> out;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Widths around those of vectors, and of several.
std::vector<std::unique_ptr<Layer>> Layers() {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const uint32_t width : {1, 3, 7, 8, 9, 16, 17, 33, 64, 67, 130}) {
    layers.push_back(std::make_unique<ConvLayer>(width, 3, width % 2 == 0));
    layers.push_back(std::make_unique<ScanLayer>(3, 1, width, 5));
    layers.push_back(std::make_unique<DeltaLayer>(3, 1, 5, width));
  }
  for (const uint32_t taps : {1u, 2u, 4u, kMaxTaps}) {
    layers.push_back(std::make_unique<ConvLayer>(70, taps, true));
  }
  for (const uint32_t dim : {1, 2, 16, 33, 128}) {
    layers.push_back(std::make_unique<ScanLayer>(6, 2, 24, dim));
    layers.push_back(std::make_unique<DeltaLayer>(6, 2, dim, 24));
  }
  return layers;
}

void OnEveryTarget(const std::function<void()>& test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(RecurrentTest, AgreesWithTheScalarTwins) {
  OnEveryTarget([] {
    for (const auto& layer : Layers()) {
      SCOPED_TRACE(layer->name());
      Mixed got(*layer);
      got.Run(*layer, kRows, 1);
      Mixed expected(*layer);
      layer->RunReference({{expected.slots[0].data(), expected.rows[0]},
                           {expected.slots[1].data(), expected.rows[1]}},
                          expected.out.data());
      // Values are of about unit size and their errors fade as they do.
      const float bound = 8 * std::numeric_limits<float>::epsilon() *
                          (4 + static_cast<float>(layer->terms()));
      for (size_t i = 0; i < got.out.size(); ++i) {
        ASSERT_LE(std::abs(got.out[i] - expected.out[i]), bound) << i;
      }
      for (int s = 0; s < 2; ++s) {
        EXPECT_TRUE(got.slots[s].EdgesAreUntouched());
        for (size_t i = 0; i < layer->state_floats(); ++i) {
          ASSERT_LE(
              std::abs(got.slots[s].Value(i) - expected.slots[s].Value(i)),
              bound)
              << i;
        }
      }
    }
  });
}

TEST(RecurrentTest, CallsAndThreadsDoNotChangeABit) {
  OnEveryTarget([] {
    for (const auto& layer : Layers()) {
      SCOPED_TRACE(layer->name());
      Mixed whole(*layer);
      whole.Run(*layer, kRows, 1);
      for (const size_t chunk : {size_t{1}, size_t{2}, size_t{5}, size_t{16}}) {
        Mixed cut(*layer);
        cut.Run(*layer, chunk, 1 + chunk % 4);
        EXPECT_TRUE(SameBits(cut.out, whole.out)) << "in calls of " << chunk;
        for (int s = 0; s < 2; ++s) {
          EXPECT_EQ(cut.slots[s].bytes(), whole.slots[s].bytes());
        }
      }
      Mixed threads(*layer);
      threads.Run(*layer, kRows, 300);
      EXPECT_TRUE(SameBits(threads.out, whole.out)) << "300 threads";
    }
  });
}

TEST(RecurrentTest, ASequenceAloneGivesTheSameBitsAsBesideOthers) {
  OnEveryTarget([] {
    for (const auto& layer : Layers()) {
      SCOPED_TRACE(layer->name());
      Mixed both(*layer);
      both.Run(*layer, kRows, 2);
      Mixed alone(*layer);
      layer->Run({{alone.slots[1].data(), alone.rows[1]}}, alone.out.data(), 0,
                 1);
      EXPECT_EQ(alone.slots[1].bytes(), both.slots[1].bytes());
      EXPECT_EQ(alone.slots[0].bytes(), Slot(*layer, 1).bytes());
      for (const uint32_t row : alone.rows[1]) {
        const size_t at = row * size_t{layer->out_width()};
        EXPECT_EQ(std::memcmp(alone.out.data() + at, both.out.data() + at,
                              layer->out_width() * sizeof(float)),
                  0);
      }
    }
  });
}

TEST(RecurrentTest, ACopiedStateGoesOnLikeTheOneItIsOf) {
  for (const auto& layer : Layers()) {
    SCOPED_TRACE(layer->name());
    Mixed lived(*layer);
    Mixed copied(*layer);
    const auto rows = absl::MakeConstSpan(lived.rows[0]);
    layer->Run({{lived.slots[0].data(), rows.first(9)}}, lived.out.data(), 0,
               1);
    copied.slots[1] = lived.slots[0];
    layer->Run({{lived.slots[0].data(), rows.subspan(9)}}, lived.out.data(), 0,
               1);
    layer->Run({{copied.slots[1].data(), rows.subspan(9)}}, copied.out.data(),
               0, 1);
    EXPECT_EQ(copied.slots[1].bytes(), lived.slots[0].bytes());
    for (const uint32_t row : rows.subspan(9)) {
      const size_t at = row * size_t{layer->out_width()};
      EXPECT_EQ(std::memcmp(copied.out.data() + at, lived.out.data() + at,
                            layer->out_width() * sizeof(float)),
                0);
    }
  }
}

}  // namespace
}  // namespace everwarm::kernels
