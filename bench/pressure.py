"""The five tools of cache-pressure (PyPI), scaled to a small machine, against both servers.

They are other people's judgement of a prefix cache: what it keeps when more is asked of it than it says it
holds, whether agents find their contexts again, what an aborted reply costs, whether long contexts are read
right, and the speeds over depth.
"""
import json
import subprocess

from harness import ROOT
from served import everwarm, llama, workspace

TOOLS = ROOT / ".deps/bench-python/bin"
# Of both servers, in tokens: what the tools are told the cache holds.
CONTEXT = 8192

# Options that make each tool a matter of a minute here, and the figures of its result: (what, unit, of the JSON).
SETTINGS = {
    "cache-pressure": (
        ["--kv-size", CONTEXT, "--context-tokens", 2000, "--num-contexts", 8],
        [("contexts of 8 x 2,000 tokens still there", "", lambda result: result["retained"]),
         ("  hit", "s", lambda result: result["hit_ttft"]), ("  miss", "s", lambda result: result["cold_ttft"])]),
    "agent-sim": (
        ["--sessions", 3, "--main-tokens", 3000, "--step-tokens", 1000, "--sub-tokens", 1500, "--finalize-tokens", 200,
         "--max-tokens", 32, "--max-context", CONTEXT, "--salt", 7, "--no-viz", "--miss-threshold", 0.5],
        [("agents that found their context again, of 3", "", lambda result: result["summary"]["finalize_ok"]),
         ("  and as fast as before", "", lambda result: result["summary"]["finalize_ttft_ok"]),
         ("  all of it", "s", lambda result: result["summary"]["elapsed"])]),
    "abort-sim": (
        ["--context-tokens", 3000, "--thinking-tokens", 50, "--max-tokens", 1000, "--max-context", CONTEXT, "--salt", 7],
        [("prompts reused after an abort, of 2", "", lambda result: result["summary"]["ok"])]),
    "needle-test": (
        ["--lengths", "1000,2000,4000", "--max-tokens", 32, "--salt", 7],
        [("needles found, of 3", "", lambda result: sum(one["ok"] for one in result["results"]))]),
    "perf-sim": (
        ["--step-tokens", 1500, "--output-tokens", 64, "--max-context", 5500, "--runs", 1, "--salt", 7],
        [("prompt tokens a second at the deepest", "tok/s", lambda result: result["summary"]["pp"][-1]),
         ("  reply tokens a second", "tok/s", lambda result: result["summary"]["tg"][-1])]),
}


def measure_tool(name, server, work):
    """Its result, and whether it was content (exit code 0)."""
    options, _ = SETTINGS[name]
    output = f"{work}/{name}.json"
    command = [TOOLS / name, "--base-url", f"http://127.0.0.1:{server.port}/v1", "--output", output, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900)
    try:
        with open(output) as file:
            return json.load(file), done.returncode == 0
    except OSError:
        raise RuntimeError(f"{name} left no result:\n{done.stdout[-2000:]}{done.stderr[-2000:]}") from None


def pressure(table, _runs):
    """Each tool once against each server: what they count does not vary, and they have their own repetitions."""
    for name, (_, figures) in SETTINGS.items():
        results = {}
        with workspace() as work:
            for side, start in (("ours", lambda: everwarm(work)), ("peer", lambda: llama(work, {"-np": 3, "-c": 3 * CONTEXT}))):
                server = start()
                results[side], content = measure_tool(name, server, work)
                server.kill()
                if not content:
                    table.note(f"{name}: not content with {side}")
        for what, unit, of in figures:
            table.add(f"{name}: {what}", of(results["ours"]), of(results["peer"]), unit=unit)
