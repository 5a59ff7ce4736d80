#include "cli/numerics.h"

#include "absl/strings/str_cat.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "kernels/attention.h"

namespace everwarm::cli {
namespace {

// Raise when a kernel or a graph changes the bits of a result.
constexpr int kVersion = 3;

}  // namespace

std::string NumericsVersion(const std::string& variant) {
  std::string ggml = absl::StrCat("ggml-", ggml_version());
  if (ggml_cpu_has_avx() != 0) absl::StrAppend(&ggml, "+avx");
  if (ggml_cpu_has_avx2() != 0) absl::StrAppend(&ggml, "+avx2");
  if (ggml_cpu_has_fma() != 0) absl::StrAppend(&ggml, "+fma");
  if (ggml_cpu_has_f16c() != 0) absl::StrAppend(&ggml, "+f16c");
  if (ggml_cpu_has_avx_vnni() != 0) absl::StrAppend(&ggml, "+avxvnni");
  if (ggml_cpu_has_avx512() != 0) absl::StrAppend(&ggml, "+avx512");
  if (ggml_cpu_has_avx512_vbmi() != 0) absl::StrAppend(&ggml, "+vbmi");
  if (ggml_cpu_has_avx512_vnni() != 0) absl::StrAppend(&ggml, "+vnni");
  if (ggml_cpu_has_avx512_bf16() != 0) absl::StrAppend(&ggml, "+bf16");
  if (ggml_cpu_has_neon() != 0) absl::StrAppend(&ggml, "+neon");
  if (ggml_cpu_has_dotprod() != 0) absl::StrAppend(&ggml, "+dotprod");
  if (ggml_cpu_has_matmul_int8() != 0) absl::StrAppend(&ggml, "+i8mm");
  const std::string version =
      absl::StrCat(kVersion, "/", kernels::KernelTarget(), "/", ggml);
  return variant.empty() ? version : absl::StrCat(version, "/", variant);
}

}  // namespace everwarm::cli
