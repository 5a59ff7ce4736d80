#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/f16.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/append_kv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace everwarm::kernels::HWY_NAMESPACE {
namespace {

// Rounds to nearest, ties to even, on every target.
void ToF16(const float* from, uint32_t count, uint16_t* to) {
  uint32_t i = 0;
  // Highway's conversion rounds this way only where the hardware does it.
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  auto* halves = reinterpret_cast<hwy::float16_t*>(to);
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, from + i)), d16, halves + i);
  }
#endif
  for (; i < count; ++i) to[i] = F32ToF16(from[i]);
}

}  // namespace
}  // namespace everwarm::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everwarm::kernels {
namespace {

HWY_EXPORT(ToF16);

struct Plane {
  const PlaneCodec& codec;
  size_t offset;
  size_t params_offset;
  uint32_t dim;
};

// Writes row `row`, head `head` of one plane.
void AppendHead(const AttentionShape& shape, const AttentionRow& row,
                const Plane& plane, size_t head, const float* from) {
  const size_t token =
      head * shape.block_tokens + row.position % shape.block_tokens;
  std::byte* slot = row.blocks[row.position / shape.block_tokens];
  std::byte* to =
      slot + plane.offset + token * plane.codec.IndexBytes(plane.dim);
  if (!plane.codec.packed()) {
    HWY_DYNAMIC_DISPATCH(ToF16)
    (from, plane.dim, reinterpret_cast<uint16_t*>(to));
    return;
  }
  std::byte* params =
      slot + plane.params_offset + token * plane.codec.ParamBytes(plane.dim);
  EncodeHead(plane.codec, from, plane.dim, to,
             reinterpret_cast<uint16_t*>(params));
}

}  // namespace

void AppendKv(const AttentionShape& shape, const LayerOffsets& offsets,
              absl::Span<const AttentionRow> rows, const float* k,
              const float* v, uint32_t thread, uint32_t num_threads) {
  const Plane keys = {shape.k_codec, offsets.k, offsets.k_params, shape.k_dim};
  const Plane values = {shape.v_codec, offsets.v, offsets.v_params,
                        shape.v_dim};
  const size_t heads = shape.num_kv_heads;
  const size_t total = rows.size() * heads;
  const size_t last = total * (thread + 1) / num_threads;
  for (size_t i = total * thread / num_threads; i < last; ++i) {
    const AttentionRow& row = rows[i / heads];
    AppendHead(shape, row, keys, i % heads, k + i * shape.k_dim);
    if (!shape.v_in_k) {
      AppendHead(shape, row, values, i % heads, v + i * shape.v_dim);
    }
  }
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
