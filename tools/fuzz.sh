#!/usr/bin/env bash
# Runs every fuzz target of a build for some seconds, from its corpus.
#   tools/fuzz.sh BUILD_DIRECTORY SECONDS
# What crashes one lies in BUILD_DIRECTORY/found/; once it is understood it goes
# into fuzz/corpus/TARGET/, which the tests read.
set -euo pipefail
build=$(cd "$1" && pwd)
seconds=$2
cd "$(dirname "$0")/.."

failed=0
mkdir -p "$build/found"
for corpus in fuzz/corpus/*/; do
  name=$(basename "$corpus")
  mkdir -p "$build/found/$name.corpus"
  printf '== fuzz_%s, %s s\n' "$name" "$seconds"
  log="$build/found/$name.log"
  if ! "$build/fuzz/fuzz_$name" -max_total_time="$seconds" -print_final_stats=1 -max_len=20000 \
      -artifact_prefix="$build/found/$name-" "$build/found/$name.corpus" "$corpus" >"$log" 2>&1; then
    failed=1
    tail -n 40 "$log"
  fi
  grep -E 'stat::number_of_executed_units|stat::new_units_added' "$log" || true
done
exit "$failed"
