#include "models/ssm_sizes.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/recurrent.h"
#include "models/key_reader.h"

namespace everwarm::models {
namespace {

constexpr uint32_t kMaxInner = 1 << 17;
constexpr uint32_t kMaxStateDim = 1 << 12;
constexpr uint32_t kMaxHeads = 1 << 12;
// Of one layer and sequence: far above any model, and its bytes fit 32 bits.
constexpr uint64_t kMaxStateFloats = 1 << 28;

}  // namespace

absl::StatusOr<SsmSizes> ReadSsmSizes(const GgufFile& file,
                                      const std::string& architecture) {
  KeyReader reader(file, architecture);
  SsmSizes sizes;
  sizes.taps = reader.Uint("ssm.conv_kernel", 2, kernels::kMaxTaps);
  const uint32_t inner = reader.Uint("ssm.inner_size", 1, kMaxInner);
  sizes.state_dim = reader.Uint("ssm.state_size", 1, kMaxStateDim);
  sizes.heads = reader.Uint("ssm.time_step_rank", 1, kMaxHeads);
  sizes.groups = reader.Uint("ssm.group_count", 1, kMaxHeads);
  EW_RETURN_IF_ERROR(reader.status());
  if (inner % sizes.heads != 0 || sizes.heads % sizes.groups != 0) {
    return file.Invalid(
        absl::StrCat("ssm.inner_size ", inner, ", ssm.time_step_rank ",
                     sizes.heads, " and ssm.group_count ", sizes.groups,
                     " do not divide each other in this order"));
  }
  sizes.head_dim = inner / sizes.heads;
  const uint64_t recurrence = uint64_t{inner} * sizes.state_dim;
  const uint64_t channels =
      inner + 2 * uint64_t{sizes.groups} * sizes.state_dim;
  if (recurrence > kMaxStateFloats || channels * sizes.taps > kMaxStateFloats) {
    return file.Invalid(absl::StrCat(
        "the state of a layer has ", recurrence, " and ", channels * sizes.taps,
        " numbers, at most ", kMaxStateFloats, " were expected"));
  }
  return sizes;
}

}  // namespace everwarm::models
