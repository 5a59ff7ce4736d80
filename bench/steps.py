"""Benchmarks of single steps and of the store, beside llama-bench of the pinned tree."""
import json
import subprocess

from harness import GEMMA3, LLAMA_BENCH, ROOT, SMOLLM2
from measure import alternate, spread

THREADS = 2
STEP_BENCH = ROOT / "build/release/src/models/step_bench"
STORE_BENCH = ROOT / "build/release/src/store/store_bench"


def ours(model, prompt, generate, depth):
    out = subprocess.run([str(part) for part in (STEP_BENCH, model, "-t", THREADS, "-p", prompt, "-n", generate, "-d", depth,
                                                 "-r", 1)],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[0])["median_tokens_per_second"]


def peer(model, prompt, generate, depth):
    out = subprocess.run([str(part) for part in (LLAMA_BENCH, "-m", model, "-t", THREADS, "-fa", 1, "-p", prompt, "-n",
                                                 generate, "-d", depth, "-r", 1, "-o", "json")],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)[0]["avg_ts"]


MODELS = {"smollm2": ("SmolLM2", SMOLLM2), "gemma3": ("Gemma 3", GEMMA3)}
TESTS = {"prefill": ("prefill 512", 512, 0), "decode": ("decode 64", 0, 64)}
DEPTHS = (0, 4000, 6144)

# Smallest ratio to llama-bench that we ask for: {(model, test, depth): ratio}. Few of Gemma's layers see the whole context.
AIMS = {("smollm2", "prefill", 6144): 1.6, ("smollm2", "decode", 6144): 1.7,
        ("gemma3", "prefill", 6144): 1.2, ("gemma3", "decode", 6144): 1.08}


def depth(table, runs, models=tuple(MODELS), depths=DEPTHS):
    """Prefill of 512 and decode of 64 tokens behind contexts of several lengths, against llama-bench -fa 1."""
    for key in models:
        name, model = MODELS[key]
        for test, (what, prompt, generate) in TESTS.items():
            for at in depths:
                results = alternate(runs, ours=lambda: ours(model, prompt, generate, at),
                                    peer=lambda: peer(model, prompt, generate, at))
                a, b = spread(results["ours"]), spread(results["peer"])
                ratio = a["median"] / b["median"]
                aim = AIMS.get((key, test, at), 1.0)
                table.add(f"{name} {what} at depth {at} / llama-bench", a, b, ratio, f">= {aim}", "tok/s", ratio >= aim)


def restore(table, runs):
    """Restore of 128 MiB past the page cache, against plain O_DIRECT reads of the same bytes, which the program alternates."""
    out = subprocess.run([str(STORE_BENCH), "--benchmark_filter=BM_Restore/readers:2/verify:1", "--benchmark_format=json",
                          f"--benchmark_repetitions={runs}"], capture_output=True, text=True, check=True).stdout
    rounds = [row for row in json.loads(out)["benchmarks"] if row["run_type"] == "iteration"]
    ours_rate = spread([row["store_MBps"] / 1000 for row in rounds])
    plain = spread([max(row["plain_MBps"], row["plain_threads_MBps"]) / 1000 for row in rounds])
    ratio = spread([row["store_over_plain"] for row in rounds])["median"]
    table.add("restore of 128 MiB / plain O_DIRECT read", ours_rate, plain, ratio, ">= 0.6", "GB/s", ratio >= 0.6)
