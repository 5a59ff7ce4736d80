// Keeps ggml and llama.cpp from printing. Their logger is one per process and
// writes to stderr by default; here its error lines become part of our
// statuses.
#ifndef EVERWARM_MODELS_QUIET_LOG_H_
#define EVERWARM_MODELS_QUIET_LOG_H_

#include <string>

namespace everwarm::models {

// Replaces the loggers of ggml, libllama and llama-common; later calls do
// nothing.
//
// Threads: any.
void SilenceLibraries();

// The error lines that the libraries wrote on this thread since the last call,
// at most a few hundred bytes, without line ends.
std::string TakeLibraryErrors();

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_QUIET_LOG_H_
