// How a model's keys and values are coded, layer by layer: what --kv says.
#ifndef EVERWARM_MODELS_KV_SCHEME_H_
#define EVERWARM_MODELS_KV_SCHEME_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/by_span.h"
#include "kernels/codec.h"

namespace everwarm::models {

struct Hyperparameters;

// Of one layer.
struct LayerScheme {
  // The codec's name in block files: "f16", "q8", "q4", "q8g32", "k8v3".
  std::string name = "f16";
  kernels::PlaneCodec k;
  kernels::PlaneCodec v;
  friend bool operator==(const LayerScheme&, const LayerScheme&) = default;
};

// Numbers of a head that are turned together (kernels/rotation.h); 0: none.
struct Rotation {
  uint32_t k = 0;
  uint32_t v = 0;
  friend bool operator==(const Rotation&, const Rotation&) = default;
};

// Of a layer's heads: they are turned before they are coded in fewer bits than
// halves have, where their sizes allow it. All of its blocks are turned if some
// are to be: queries meet both.
Rotation RotationOf(const Hyperparameters& hyperparameters,
                    const BySpan<LayerScheme>& scheme);

// What the first tokens of every sequence are kept in: most heads look at them
// whatever the text is.
struct FirstTokens {
  // 0: as all others. Rounded up to whole blocks (FirstSpans()).
  uint32_t tokens = 0;
  LayerScheme scheme;
};
inline constexpr uint32_t kMaxFirstTokens = 1 << 20;
// Of "q4": one tile. It mends a quarter of what 4 bits lose on Gemma 3 270M, a
// thirteenth on SmolLM2 (docs/decisions/0011), for 1 % of the bytes at 6,144
// tokens.
inline constexpr uint32_t kQ4FirstTokens = 64;

// Blocks of `block_tokens` tokens that hold the first `tokens`, as many as it
// takes for kernels::kCodedTokens.
uint32_t FirstSpans(uint32_t tokens, uint32_t block_tokens);

// Numbers that share scale and bias unless somebody says otherwise.
inline constexpr uint32_t kUsualAffineGroup = 64;

// Keys and values affine in `bits` bits; 16 bits are f16.
LayerScheme AffineScheme(uint32_t bits, uint32_t group = kUsualAffineGroup);

// Threads: immutable, any.
class KvScheme {
 public:
  // f16 everywhere.
  KvScheme() = default;

  // `text` is
  //   f16           halves
  //   q8            affine, 64 numbers share scale and bias
  //   q4            the same in 4 bits; the first kQ4FirstTokens tokens in f16,
  //                 unless others are named
  //   turbo[:kKvV]  affine keys of K bits (2, 4, 5, 8) and values of V bits (2,
  //                 3, 4, 5, 8) that are taken for normal, 32 numbers share
  //                 their parameters; k8v3 without the second part
  //   SCHEME+SCHEME:N  the first N tokens in the second scheme, the others in
  //                 the first: "q4+f16:128"
  // Layers with a window keep f16, and have no first tokens: what they take is
  // bounded (docs/decisions/0011).
  // Errors: kInvalidArgument, with what is possible.
  static absl::StatusOr<KvScheme> Parse(const std::string& text);
  // `usual` for all layers that `layers` does not name.
  static KvScheme ByLayer(LayerScheme usual,
                          std::map<uint32_t, LayerScheme> layers,
                          FirstTokens first = {});

  const LayerScheme& Layer(uint32_t layer, bool windowed) const;
  // By span: Layer(), or that of the first tokens where it is another one and
  // the layer sees the whole context.
  BySpan<LayerScheme> LayerBySpan(uint32_t layer, bool windowed,
                                  uint32_t block_tokens) const;
  const FirstTokens& first() const { return first_; }
  // Layers with a window are kept in another codec than the one asked for.
  bool SparesWindows() const { return spares_windows_; }

  // kInvalidArgument where the model's heads cannot be coded so, a layer is
  // named that it does not have, or first tokens are asked for and nothing
  // would be kept otherwise for being first.
  absl::Status Check(const Hyperparameters& hyperparameters) const;

 private:
  absl::Status CheckFirst(const Hyperparameters& hyperparameters) const;

  LayerScheme usual_;
  LayerScheme windowed_;
  bool spares_windows_ = false;
  FirstTokens first_;
  // Somebody named them.
  bool first_asked_ = false;
  std::map<uint32_t, LayerScheme> layers_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_KV_SCHEME_H_
