"""Repetition, medians and the files a benchmark leaves behind."""
import json
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build/bench"


def spread(values):
    """Median with the smallest and the largest value."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def alternate(runs, *, warm_up=True, **sides):
    """Calls every side once per run, in turn, after one warm-up of each unless they do that themselves; returns {side: [results]}."""
    if warm_up:
        for side in sides.values():
            side()
    results = {name: [] for name in sides}
    for run in range(runs):
        order = list(sides.items())
        if run % 2:
            order.reverse()
        for name, side in order:
            results[name].append(side())
    return results


def machine():
    model = "unknown"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {"cpu": model, "cores": len([1 for line in open("/proc/cpuinfo") if line.startswith("processor")]),
            "kernel": platform.release(), "commit": commit.stdout.strip()}


class Table:
    """Rows of (what, ours, peer, ratio, target), printed and kept as JSON."""

    def __init__(self, name):
        self.name = name
        self.rows = []
        self.notes = []

    def add(self, what, ours, peer=None, ratio=None, target=None, unit="", good=None):
        self.rows.append({"what": what, "ours": ours, "peer": peer, "ratio": ratio, "target": target, "unit": unit,
                          "good": good})
        print(self.line(self.rows[-1]), flush=True)

    def note(self, text):
        """Something that a reader of the figures must know."""
        self.notes.append(text)
        print(f"  note: {text}", flush=True)

    @staticmethod
    def figure(value, unit):
        if value is None:
            return "-"
        if isinstance(value, dict):
            return f"{value['median']:.3f} [{value['min']:.3f}, {value['max']:.3f}] {unit}"
        return f"{value:.3f} {unit}" if isinstance(value, float) else f"{value} {unit}"

    def line(self, row):
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        verdict = {None: "", True: "ok", False: "MISSED"}[row["good"]]
        return (f"{row['what']:<58} {self.figure(row['ours'], row['unit']):>34} {self.figure(row['peer'], row['unit']):>34} "
                f"{ratio:>9} {row['target'] or '':>12} {verdict}")

    @staticmethod
    def header():
        return f"{'what':<58} {'ours':>34} {'peer':>34} {'ratio':>9} {'target':>12}"

    def save(self):
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps({"benchmark": self.name, "machine": machine(), "rows": self.rows, "notes": self.notes}, indent=1))
        return path
