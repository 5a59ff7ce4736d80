"""Benchmarks of single steps and of the store, beside llama-bench of the pinned tree."""
import json
import pathlib
import statistics
import subprocess

from harness import GEMMA3, LLAMA_BENCH, ROOT, SMOLLM2
from measure import RESULTS, alternate, spread

THREADS = 2
STEP_BENCH = ROOT / "build/release/src/models/step_bench"
QUALITY_BENCH = ROOT / "build/release/src/models/kv_quality_bench"
STORE_BENCH = ROOT / "build/release/src/store/store_bench"


def ours(model, depth, kv="f16", prompt=0, generate=64, repeats=1):
    """Tokens a second of a prompt and of a reply behind a context, each where it is asked for: {"prefill": ..., "decode": ...}.

    Of several repeats, which share the context, the median.
    """
    out = subprocess.run([str(part) for part in (STEP_BENCH, model, "-t", THREADS, "-p", prompt, "-n", generate, "-d", depth,
                                                 "-r", repeats, "-kv", kv)],
                         capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return {"prefill" if row["test"].startswith("pp") else "decode": row["median_tokens_per_second"] for row in rows}


def peer(model, depth, kv="f16", prompt=0, generate=64, repeats=1):
    """The same of llama-bench."""
    out = subprocess.run([str(part) for part in (LLAMA_BENCH, "-m", model, "-t", THREADS, "-fa", 1, "-p", prompt, "-n",
                                                 generate, "-d", depth, "-r", repeats, "-ctk", kv, "-ctv", kv, "-o", "json")],
                         capture_output=True, text=True, check=True).stdout
    return {"prefill" if row["n_prompt"] > 0 else "decode": statistics.median(row["samples_ts"]) for row in json.loads(out)}


MODELS = {"smollm2": ("SmolLM2", SMOLLM2), "gemma3": ("Gemma 3", GEMMA3)}
TESTS = {"prefill": "prefill 512", "decode": "decode 64"}
DEPTHS = (0, 4000, 6144, 8192)

# Smallest ratio to llama-bench that we ask for: {(model, test, depth): ratio}. Few of Gemma's layers see the whole context.
AIMS = {("smollm2", "prefill", 6144): 1.6, ("smollm2", "decode", 6144): 1.7,
        ("gemma3", "prefill", 6144): 1.2, ("gemma3", "decode", 6144): 1.08}


def depth(table, runs, models=tuple(MODELS), depths=DEPTHS):
    """Prefill of 512 and decode of 64 tokens behind contexts of several lengths, against llama-bench -fa 1.

    Both programs warm up by themselves.
    """
    for key in models:
        name, model = MODELS[key]
        for at in depths:
            results = alternate(runs, warm_up=False, ours=lambda: ours(model, at, prompt=512),
                                peer=lambda: peer(model, at, prompt=512))
            for test, what in TESTS.items():
                a, b = (spread([run[test] for run in results[side]]) for side in ("ours", "peer"))
                ratio = a["median"] / b["median"]
                aim = AIMS.get((key, test, at), 1.0)
                table.add(f"{name} {what} at depth {at} / llama-bench", a, b, ratio, f">= {aim}", "tok/s", ratio >= aim)
    plot_depth(table)


def plot_depth(table):
    """A curve for each side over depth, as build/bench/depth.svg, where matplotlib is there (tools/setup.sh bench)."""
    python = ROOT / ".deps/bench-python/bin/python"
    if python.exists():
        subprocess.run([python, pathlib.Path(__file__).parent / "plot.py", table.save(), RESULTS / "depth.svg"], check=True)


def codecs(table, runs):
    """Decode of 64 tokens behind 6,144 with coded KV, against llama-bench with its own and with f16, on SmolLM2.

    Each call repeats its decode three times behind one context, which takes most of its time, after a warm-up of its own.
    """
    sides = {kv: (lambda kv=kv: ours(SMOLLM2, 6144, kv, repeats=3)["decode"]) for kv in ("f16", "q8", "q4", "turbo")}
    peers = {f"llama {kv}": (lambda kv=kv: peer(SMOLLM2, 6144, kv, repeats=3)["decode"]) for kv in ("f16", "q8_0", "q4_0")}
    rates = {name: spread(values) for name, values in alternate(runs, warm_up=False, **sides, **peers).items()}
    for kv, against, aim in (("f16", "f16", 1.7), ("q8", "q8_0", 1.7), ("q8", "f16", 2.2), ("q4", "q4_0", 1.0),
                             ("turbo", "f16", 1.0)):
        ratio = rates[kv]["median"] / rates[f"llama {against}"]["median"]
        table.add(f"SmolLM2 decode 64 at depth 6144, {kv} / llama-bench {against}", rates[kv], rates[f"llama {against}"], ratio,
                  f">= {aim}", "tok/s", ratio >= aim)


# Largest mean KL from f16, and the codec of llama.cpp that is no better where that is missed.
QUALITY = {"q8": (0.003, "q8_0"), "turbo:k8v3": (0.04, "q4_0"), "q4": (0.06, "q4_0")}


def quality(table, runs):
    """Mean KL of coded KV from f16 over 2,048 positions of prose (docs/format.md and ARCHITECTURE.md), both models."""
    del runs  # the same every time
    text = RESULTS / "text.md"
    RESULTS.mkdir(parents=True, exist_ok=True)
    text.write_text("".join((ROOT / "docs" / name).read_text() for name in ("ARCHITECTURE.md", "format.md")))
    for name, model in MODELS.values():
        for weights in ([], ["--f32-weights"]):
            out = subprocess.run([str(part) for part in (QUALITY_BENCH, model, text, *weights)], capture_output=True, text=True,
                                 check=True).stdout
            rows = {row["kv"]: row for row in map(json.loads, out.splitlines())}
            for kv, (most, peer_kv) in QUALITY.items():
                kl, peer_kl = rows[kv]["mean_kl"], rows[peer_kv]["mean_kl"]
                table.add(f"{name}{', f32 weights' if weights else ''}: mean KL of {kv} / libllama's {peer_kv}", f"{kl:.2e}",
                          f"{peer_kl:.2e}", kl / peer_kl, f"< {most}", "nats", kl < most or kl <= peer_kl)


def restore(table, runs):
    """Restore of 128 MiB past the page cache, against plain O_DIRECT reads of the same bytes, which the program alternates."""
    out = subprocess.run([str(STORE_BENCH), "--benchmark_filter=BM_Restore/readers:2/verify:1", "--benchmark_format=json",
                          f"--benchmark_repetitions={runs}"], capture_output=True, text=True, check=True).stdout
    rounds = [row for row in json.loads(out)["benchmarks"] if row["run_type"] == "iteration"]
    ours_rate = spread([row["store_MBps"] / 1000 for row in rounds])
    plain = spread([max(row["plain_MBps"], row["plain_threads_MBps"]) / 1000 for row in rounds])
    ratio = spread([row["store_over_plain"] for row in rounds])["median"]
    table.add("restore of 128 MiB / plain O_DIRECT read", ours_rate, plain, ratio, ">= 0.6", "GB/s", ratio >= 0.6)
