#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
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

// Writes row `row`, head `head` of one plane.
void AppendHead(const AttentionShape& shape, const AttentionRow& row,
                size_t plane, uint32_t dim, size_t head, const float* from) {
  const size_t token = row.position % shape.block_tokens;
  std::byte* slot = row.blocks[row.position / shape.block_tokens];
  auto* to = reinterpret_cast<uint16_t*>(slot + plane) +
             (head * shape.block_tokens + token) * dim;
  HWY_DYNAMIC_DISPATCH(ToF16)(from, dim, to);
}

}  // namespace

void AppendKv(const AttentionShape& shape, const LayerOffsets& offsets,
              absl::Span<const AttentionRow> rows, const float* k,
              const float* v, uint32_t thread, uint32_t num_threads) {
  const size_t heads = shape.num_kv_heads;
  const size_t total = rows.size() * heads;
  const size_t last = total * (thread + 1) / num_threads;
  for (size_t i = total * thread / num_threads; i < last; ++i) {
    const AttentionRow& row = rows[i / heads];
    AppendHead(shape, row, offsets.k, shape.k_dim, i % heads,
               k + i * shape.k_dim);
    AppendHead(shape, row, offsets.v, shape.v_dim, i % heads,
               v + i * shape.v_dim);
  }
}

}  // namespace everwarm::kernels
#endif  // HWY_ONCE
