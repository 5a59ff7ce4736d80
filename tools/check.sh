#!/usr/bin/env bash
# Before a change is proposed: format, layers, unit tests and histories plain and
# sanitized.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }

say "format"
git ls-files 'src/*.h' 'src/*.cc' 'testing/*.h' 'testing/*.cc' 'tests/*.cc' 'tests/*.h' 'fuzz/*.cc' 'fuzz/*.h' 'bench/*.cc' |
  xargs -r clang-format-14 --dry-run --Werror

say "layers"
python3 tools/check_layers.py

for preset in release asan tsan; do
  say "unit tests and histories, $preset"
  make --no-print-directory "build/$preset/build.ninja"
  cmake --build "build/$preset" -j "$(nproc)" | tail -n 1
  ctest --test-dir "build/$preset" -L 'unit|histories' --output-on-failure |
    tail -n 5
done
say "all good"
