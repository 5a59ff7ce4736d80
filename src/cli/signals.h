// SIGINT and SIGTERM as something that one thread waits for.
#ifndef EVERWARM_CLI_SIGNALS_H_
#define EVERWARM_CLI_SIGNALS_H_

#include <chrono>
#include <optional>

namespace everwarm::cli {

// Blocks both signals for this thread and all that it starts later, and ignores
// SIGPIPE. Call first in main().
void BlockStopSignals();

// The next SIGINT or SIGTERM, or nothing at timeout.
// Requires: BlockStopSignals().
std::optional<int> WaitForStopSignal(std::chrono::milliseconds timeout);

}  // namespace everwarm::cli

#endif  // EVERWARM_CLI_SIGNALS_H_
