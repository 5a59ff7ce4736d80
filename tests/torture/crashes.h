// Every crash there can be: whatever the store does, it is stopped at each of
// its calls to the disk, with everything that can become of what was not
// synced.
#ifndef EVERWARM_TESTS_TORTURE_CRASHES_H_
#define EVERWARM_TESTS_TORTURE_CRASHES_H_

#include <string>
#include <vector>

#include "tests/torture/counts.h"
#include "tests/torture/world.h"

namespace everwarm::torture {

// What leads up to a crash, and what the crash may stop.
struct Scene {
  std::string name;
  WorldOptions options;
  // Runs to its end.
  void (*before)(World&);
  // Is stopped. The process may run already or start here.
  void (*during)(World&);
};
std::vector<Scene> AllScenes();

// Stops `scene` at its first call, at its second, and so on to its last; with
// as many seeds for each torn and each reordered disk. Returns what went wrong,
// each with how to get there.
std::vector<std::string> StopAtEachCall(const Scene& scene, uint64_t seeds,
                                        Counts* counts);

}  // namespace everwarm::torture

#endif  // EVERWARM_TESTS_TORTURE_CRASHES_H_
