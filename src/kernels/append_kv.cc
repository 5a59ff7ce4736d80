#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/f16.h"
#include "kernels/kv_planes.h"
#include "kernels/rotation.h"

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

// Writes row `row`, head `head` of one plane as it is.
void AppendAsIs(const AttentionRow& row, const CodedPlane& plane, uint32_t head,
                const float* from) {
  const CodedHead to = plane.At(row.blocks[row.position / plane.block_tokens],
                                head, row.position);
  if (!plane.codec.packed()) {
    HWY_DYNAMIC_DISPATCH(ToF16)
    (from, plane.dim, reinterpret_cast<uint16_t*>(to.indices));
    return;
  }
  EncodeHead(plane.codec, from, plane.dim, to.indices, to.params);
}

// The same, rotated by parts of `rotation` numbers unless that is 0.
void AppendHead(const AttentionRow& row, const CodedPlane& plane, uint32_t head,
                uint32_t rotation, const float* from) {
  if (rotation == 0) return AppendAsIs(row, plane, head, from);
  constexpr uint32_t kOnStack = 1024;
  float on_stack[kOnStack];
  std::vector<float> on_heap(plane.dim > kOnStack ? plane.dim : 0);
  float* x = plane.dim > kOnStack ? on_heap.data() : on_stack;
  // One number that is none must not become all of them.
  std::transform(from, from + plane.dim, x, Storable);
  RotateHead(x, plane.dim, rotation);
  AppendAsIs(row, plane, head, x);
}

}  // namespace

void AppendKv(const AttentionShape& shape, const LayerOffsets& offsets,
              absl::Span<const AttentionRow> rows, const float* k,
              const float* v, uint32_t thread, uint32_t num_threads) {
  const CodedPlanes first = PlanesAt(shape, offsets, 0);
  const CodedPlanes rest = PlanesAt(shape, offsets, shape.first.tokens);
  const size_t heads = shape.num_kv_heads;
  const size_t total = rows.size() * heads;
  const size_t last = total * (thread + 1) / num_threads;
  for (size_t i = total * thread / num_threads; i < last; ++i) {
    const AttentionRow& row = rows[i / heads];
    const auto head = static_cast<uint32_t>(i % heads);
    const CodedPlanes& planes =
        row.position < shape.first.tokens ? first : rest;
    AppendHead(row, planes.k, head, shape.k_rotation, k + i * shape.k_dim);
    if (!shape.v_in_k) {
      AppendHead(row, planes.v, head, shape.v_rotation, v + i * shape.v_dim);
    }
  }
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
