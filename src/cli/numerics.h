// What the bits of a computed key or value depend on besides weights and
// tokens: our kernels' arithmetic, ggml's version and the instruction sets in
// use. Part of the fingerprint, so that a change of it finds none of the old
// blocks.
#ifndef EVERWARM_CLI_NUMERICS_H_
#define EVERWARM_CLI_NUMERICS_H_

#include <string>

namespace everwarm::cli {

// `variant` is ModelInfo::variant.
std::string NumericsVersion(const std::string& variant);

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_NUMERICS_H_
