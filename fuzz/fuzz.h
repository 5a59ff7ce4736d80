// What libFuzzer calls, or corpus_main.cc with the files of a corpus.
#ifndef EVERWARM_FUZZ_FUZZ_H_
#define EVERWARM_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace everwarm::fuzz {

// Ends the process when what must hold does not.
inline void Require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", what);
    std::abort();
  }
}

}  // namespace everwarm::fuzz

#endif  // EVERWARM_FUZZ_FUZZ_H_
