"""Draws the results of the suite `depth`: tokens a second over the context's length, both sides, with their spread."""
import json
import re
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

ROW = re.compile(r"(?P<model>.+) (?P<test>prefill|decode) \d+ at depth (?P<depth>\d+) / ")
SIDES = {"ours": ("Everwarm", "tab:red"), "peer": ("llama-bench -fa 1", "tab:blue")}


def curves(rows):
    """{(model, test): {side: [(depth, figures)]}}"""
    found = {}
    for row in rows:
        match = ROW.match(row["what"])
        if match:
            sides = found.setdefault((match["model"], match["test"]), {side: [] for side in SIDES})
            for side, points in sides.items():
                points.append((int(match["depth"]), row[side]))
    return found


def main(results, picture):
    with open(results) as file:
        found = curves(json.load(file)["rows"])
    matplotlib.rcParams["svg.hashsalt"] = "everwarm"
    figure, axes = pyplot.subplots(1, len(found), figsize=(4 * len(found), 3.2), squeeze=False)
    for axis, ((model, test), sides) in zip(axes[0], found.items()):
        for side, points in sides.items():
            label, colour = SIDES[side]
            depths = [depth for depth, _ in points]
            medians = [figure["median"] for _, figure in points]
            spread = [[median - figure["min"] for median, (_, figure) in zip(medians, points)],
                      [figure["max"] - median for median, (_, figure) in zip(medians, points)]]
            axis.errorbar(depths, medians, yerr=spread, label=label, color=colour, marker="o", capsize=3)
        axis.set(title=f"{model}, {test}", xlabel="tokens of context", ylim=(0, None))
    axes[0][0].set_ylabel("tokens a second")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
