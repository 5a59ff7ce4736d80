#!/usr/bin/env python3
"""Measures Everwarm, beside its peers where there are any; prints a table and leaves JSON in build/bench/.

Both sides of every comparison run in one run, in alternation, after a warm-up; figures are medians with the
smallest and the largest. `make bench` runs all of it (about half an hour on 2 cores); name some to run only those.
"""
import argparse
import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

import concurrent_load  # noqa: E402
import measure  # noqa: E402
import pressure  # noqa: E402
import served  # noqa: E402
import stalled_disk  # noqa: E402
import steps  # noqa: E402
import turns  # noqa: E402

SUITES = {"depth": steps.depth, "codecs": steps.codecs, "quality": steps.quality, "restore": steps.restore,
          "restart": served.restart, "restart-window": served.restart_window, "turns": turns.turns, "switch": served.switch, "tier": served.tier,
          "disk": served.disk, "memory": served.memory,
          "streams": concurrent_load.streams, "agents": concurrent_load.agents, "fairness": concurrent_load.fairness,
          "pressure": pressure.pressure, "stalled": stalled_disk.stalled}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="among: " + ", ".join(SUITES))
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each side (default 5)")
    parser.add_argument("--models", nargs="+", choices=steps.MODELS, default=tuple(steps.MODELS),
                        help="models of the suite 'depth' (default both)")
    parser.add_argument("--depths", nargs="+", type=int, default=steps.DEPTHS, metavar="TOKENS",
                        help="context lengths of the suite 'depth' (default 0 4000 6144 8192)")
    arguments = parser.parse_args()
    suites = {**SUITES, "depth": functools.partial(steps.depth, models=arguments.models, depths=arguments.depths)}
    for name in arguments.suites:
        if name not in SUITES:
            parser.error(f"no suite '{name}'; there are {', '.join(SUITES)}")
    print(measure.Table.header())
    for name in arguments.suites or SUITES:
        table = measure.Table(name)
        suites[name](table, arguments.runs)
        table.save()


if __name__ == "__main__":
    main()
