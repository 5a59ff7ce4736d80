#!/usr/bin/env python3
"""Tries for as long as one likes to make Everwarm serve something wrong or lose something acknowledged.

Random histories and crashes at every call on a simulated disk, then real servers that are killed under load.
Ends with one table; exits 1 when anything was wrong. Called by `make torture`.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def simulated(binary, arguments):
    """Runs the histories; their counts by name. An indented name is a part of the one above it."""
    command = [binary, "--first", str(arguments.first), "--seconds", str(arguments.seconds),
               "--crash-seeds", str(arguments.crash_seeds)]
    if arguments.histories:
        command += ["--histories", str(arguments.histories)]
    counts = {}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("PROBLEM"):
            print(line, end="", flush=True)
            continue
        name, number = line.rsplit(None, 1)
        counts[name.rstrip()] = int(number)
    process.wait()
    if not counts:
        counts["problems"] = 1
        print(f"PROBLEM {binary} ended with {process.returncode}", flush=True)
    return counts


def killed(arguments, directory):
    """Kills real servers; counts by name."""
    import kills
    import tiny_model
    seed = arguments.first
    runs = []
    for name, kind, architecture, options in (("full", "full", "llama", ()), ("window", "window", "gemma3", ()),
                                              ("small cap", "full", "llama", ("--ssd-cache", "1MiB")),
                                              ("recurrent", "recurrent", "lfm2", ())):
        (directory / name).mkdir()
        path = str(directory / f"{architecture}.gguf")
        tiny_model.write(path, architecture=architecture)
        runs.append(kills.Torture(directory / name, path, seed=seed, options=options, durable=not options, kind=kind))
    began = time.monotonic()
    cycles = 0
    while cycles < arguments.kills and not any(run.problems for run in runs):
        runs[cycles % len(runs)].cycle()
        cycles += 1
        if cycles % 10 == 0:
            print(f"{cycles} of {arguments.kills} kills, {time.monotonic() - began:.0f} s", file=sys.stderr)
    total = {"problems": 0}
    for run in runs:
        for problem in run.problems:
            print(f"PROBLEM {problem}", flush=True)
        total["problems"] += len(run.problems)
        for name, count in run.counts.items():
            total[name] = total.get(name, 0) + count
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--seconds", type=int, default=300, help="on the simulated disk")
    parser.add_argument("--histories", type=int, default=0, help="at most so many")
    parser.add_argument("--first", type=int, default=int(time.time()), help="number of the first history")
    parser.add_argument("--crash-seeds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=100, help="of real servers")
    arguments = parser.parse_args()
    os.environ["EVERWARM_BINARY"] = str(pathlib.Path(arguments.build) / "everwarm")
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    sys.dont_write_bytecode = True

    print(f"first history {arguments.first}", flush=True)
    counts = simulated(str(pathlib.Path(arguments.build) / "tests/torture/torture"), arguments)
    if arguments.kills:
        with tempfile.TemporaryDirectory(prefix="everwarm_torture_") as directory:
            for name, count in killed(arguments, pathlib.Path(directory)).items():
                counts[name] = counts.get(name, 0) + count
    last = ("wrong bytes served", "wrong replies", "acknowledged tokens lost", "problems")
    for name in [name for name in counts if name not in last] + list(last):
        print(f"{name:36} {counts.get(name, 0):>14,}")
    return 1 if any(counts.get(name, 0) for name in last) else 0


if __name__ == "__main__":
    sys.exit(main())
